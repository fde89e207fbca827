"""Structs that travel between machines come back as they were."""

import numpy as np
import pytest

from hogbatch.cluster.divided.records import PartReading, StoredMoments
from hogbatch.data.encode import Encoding
from hogbatch.data.order import Fractions
from hogbatch.data.raw import Columns
from hogbatch.data.scale import ColumnMoments, Scaler
from tests.unit.cluster.divided.folders import sent


@pytest.mark.parametrize(
    "encoding",
    [
        Encoding("binary", (-1.0, 1.0), 1),
        Encoding("binary", (False, True), 1),
        Encoding("classes", ("fir", "oak", "1"), 3),
        Encoding("multilabel", (), 7),
        Encoding("real", (), 1, 0.1 + 0.2, 1 / 3),
    ],
)
def test_a_reading_is_sent_as_it_is(encoding):
    random = np.random.default_rng(0)
    scaler = Scaler(random.normal(0, 1e9, 2), random.random(2))
    reading = PartReading(
        index_base=1,
        columns=Columns(("a", "b"), "y", 2),
        features=2,
        sparse=False,
        encoding=encoding,
        stored_scaler=(scaler.mean.tobytes(), scaler.scale.tobytes()),
        fractions=Fractions(0.2, 0.1),
        seed=3,
    )
    found = sent(reading)
    assert found == reading
    assert list(map(type, found.encoding.classes)) == list(map(type, encoding.classes))
    assert isinstance(found.columns, Columns)
    assert np.array_equal(found.fitted.scaler.mean, scaler.mean)
    assert np.array_equal(found.fitted.scaler.scale, scaler.scale)


def test_moments_of_a_part_that_lacks_features_are_those_of_zeros():
    low, high = np.array([-1.0, 0, 0, 2]), np.array([-0.5, 0, 3, 2])
    moments = ColumnMoments(9, np.array([-0.75, 0, 1, 2]), np.array([0.1, 0, 4, 0]), low, high)
    stored = sent(StoredMoments.of(moments))
    assert len(stored.values) == 4 * 3 * 8
    found = stored.restored(6)
    assert found.rows == 9
    for own, known in zip(found[1:], moments[1:], strict=True):
        assert own.tolist() == [*known.tolist(), 0, 0]
