"""Structs that travel between machines come back as they were."""

import numpy as np
import pytest

from hogbatch.cluster.divided.records import PartOptions, PartReading, StoredMoments, StoredScaler
from hogbatch.data.encode import Encoding
from hogbatch.data.raw import Columns
from hogbatch.data.scale import ColumnMoments, Scaler
from tests.unit.cluster.divided.folders import sent, surveys_of


def reading(encoding, scaler=None):
    return PartReading(
        options=PartOptions("y", "yes", 0.25, None),
        index_base=1,
        columns=Columns(("a", "b"), "y", 2),
        features=2,
        sparse=False,
        encoding=encoding,
        stored_scaler=None if scaler is None else StoredScaler.of(scaler),
        test_fraction=0.2,
        seed=3,
    )


@pytest.mark.parametrize(
    "encoding",
    [
        Encoding("binary", (-1.0, 1.0), 1),
        Encoding("binary", (False, True), 1),
        Encoding("classes", ("fir", "oak", "1"), 3),
        Encoding("classes", (0.0, 2.0, 1e300), 3),
        Encoding("multilabel", (), 7),
        Encoding("real", (), 1, 0.1 + 0.2, 1 / 3),
    ],
)
def test_a_reading_is_sent_as_it_is(encoding):
    found = sent(reading(encoding))
    assert found == reading(encoding)
    assert list(map(type, found.encoding.classes)) == list(map(type, encoding.classes))
    assert isinstance(found.columns, Columns)
    assert found.scaler is None


def test_the_scaler_is_restored_exactly():
    random = np.random.default_rng(0)
    scaler = Scaler(random.normal(0, 1e9, 2), random.random(2))
    found = sent(reading(Encoding("real", (), 1), scaler)).scaler
    assert np.array_equal(found.mean, scaler.mean)
    assert np.array_equal(found.scale, scaler.scale)


def test_moments_of_a_part_that_lacks_features_are_those_of_zeros():
    low, high = np.array([-1.0, 0, 0, 2]), np.array([-0.5, 0, 3, 2])
    moments = ColumnMoments(9, np.array([-0.75, 0, 1, 2]), np.array([0.1, 0, 4, 0]), low, high)
    stored = sent(StoredMoments.of(moments))
    assert len(stored.values) == 4 * 3 * 8
    found = stored.restored(6)
    assert found.rows == 9
    for own, known in zip(found[1:], moments[1:], strict=True):
        assert own.tolist() == [*known.tolist(), 0, 0]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", "a,b,y\n1,2,0\n3,4,1\n"), ("a.svm", "1,2 1:3\n\n0 2:5\n"), ("a.svm", "2 1:3\n")],
)
def test_a_survey_is_sent_as_it_is(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    (found,) = surveys_of(tmp_path, test_fraction=0.5)
    assert sent(found) == found
    assert len(found.part.digest) == 16
