"""Rows without a label are left out with a note, from files and from Python alike."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from scipy.sparse import csr_matrix

import hogbatch
from hogbatch.config.sources import merge_sources
from hogbatch.data.load import load
from hogbatch.data.order import Fractions
from hogbatch.data.raw import ReadOptions
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import DataError, UsageError
from hogbatch.run.arrays import GivenArrays
from hogbatch.views.console import PlainConsole

ROWS, WITHOUT = 40, [3, 17]
X = np.random.default_rng(0).normal(size=(ROWS, 3))
NUMBERS = np.where(X[:, 0] > 0, 2.5, X[:, 1])
TEXTS = np.where(X[:, 0] > 0, "yes", "no").astype(object)


def missing(labels, value):
    found = labels.astype(float if labels.dtype == float and value is np.nan else object)
    found[WITHOUT] = value
    return found


def loaded(X, y, *, label=None, **settings):
    arrays = GivenArrays(X, y, **settings)
    arrays = arrays if label is None else arrays.with_labels(label)
    config = merge_sources({"data": "arrays", "test_fraction": 0, "validation_fraction": 0})
    return arrays.load(config, PlainConsole(quiet=True))


def expect_rest(data, labels, notes=1):
    kept = np.delete(np.arange(ROWS), WITHOUT)
    plain = loaded(X[kept], labels[kept].tolist())
    assert data.encoding == plain.encoding and data.train.rows == len(kept)
    assert data.train.labels.values.tolist() == plain.train.labels.values.tolist()
    if data.table is None:
        np.testing.assert_array_equal(data.train.inputs.dense, plain.train.inputs.dense)
    assert sum("2 rows without a label" in note for note in data.notes) == notes


@pytest.mark.parametrize("value", [None, np.nan, pandas.NA, pandas.NaT])
@pytest.mark.parametrize("labels", [NUMBERS, TEXTS, X[:, 0] > 0])
@pytest.mark.parametrize("frame", [False, True])
def test_whatever_marks_a_missing_label(value, labels, frame):
    x = pandas.DataFrame(X, columns=list("abc")) if frame else X
    expect_rest(loaded(x, missing(labels, value)), labels)


CONTAINERS = {
    "pandas": lambda data: pandas.DataFrame(data),
    "nullable": lambda data: pandas.DataFrame(data).convert_dtypes(),
    "Polars": lambda data: polars.DataFrame(data, strict=False),
    "Arrow": lambda data: pyarrow.table(data),
    "dictionary": lambda data: data,
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("labels", [NUMBERS, TEXTS])
def test_a_column_of_a_frame_has_the_labels(container, labels):
    columns = {name: X[:, n] for n, name in enumerate("ab")}
    columns |= {"churn": missing(labels, None).tolist(), "c": X[:, 2]}
    frame = CONTAINERS[container](columns)
    data = loaded(frame, None, label=("churn",), X_test=frame)
    expect_rest(data, labels, notes=2)
    assert [column.name for column in data.table.columns] == ["a", "b", "c"]
    assert data.sets["test"].rows == ROWS - 2
    with pytest.raises(
        UsageError, match=r"expected one column 'no'; got no such column \(it has a, b"
    ):
        loaded(frame, None, label=("no",))
    with pytest.raises(UsageError, match="expected `label`, the name of a column, or y; got both"):
        loaded(frame, labels, label=("churn",))


def test_files_and_sparse_rows_too(tmp_path):
    labels, options = missing(NUMBERS, np.nan), ReadOptions(table=TableOptions())
    np.savez(tmp_path / "a.npz", X=X, y=labels)
    expect_rest(load(tmp_path / "a.npz", fractions=Fractions(0), options=options), NUMBERS)
    table = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": labels})
    table.to_csv(tmp_path / "a.csv", index=False)
    expect_rest(load(tmp_path / "a.csv", fractions=Fractions(0), options=options), NUMBERS)
    sparse = loaded(csr_matrix(X), labels, sample_weight=np.arange(1, ROWS + 1))
    kept = np.delete(np.arange(ROWS), WITHOUT)
    assert (
        sparse.train.inputs.values.tolist()
        == loaded(csr_matrix(X[kept]), NUMBERS[kept]).train.inputs.values.tolist()
    )
    own = (kept + 1) / (kept + 1).mean()
    np.testing.assert_allclose(sparse.train.labels.weights, own, rtol=1e-6)


def test_no_label_at_all_is_an_error(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=np.full(ROWS, np.nan))
    with pytest.raises((UsageError, DataError), match="y: expected labels; got none in any row"):
        load(tmp_path / "a.npz")


def test_a_model_of_a_frame_with_labels_knows_their_name(tmp_path):
    frame = pandas.DataFrame({"a": X[:, 0], "churn": TEXTS})
    for given in (frame, polars.from_pandas(frame), pyarrow.Table.from_pandas(frame)):
        run = hogbatch.train(given, label="churn", epochs=1, hidden=(), verbose=False)
        assert run.model.table.labels[0].name == "churn"
        assert run.model.predict(given).shape == (ROWS,)
