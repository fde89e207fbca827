import contextlib
import os

import numpy as np
import pytest
import scipy.sparse

from hogbatch.data.csr import to_dense
from hogbatch.errors import DataError, UsageError
from hogbatch.machine import budget
from tests.support.assignments import examples
from tests.support.reading import read, read_error

X = np.array([[0, 1.5, 0], [2, 0, 3]])


@pytest.fixture
def save(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "a.npz", **arrays)
        return tmp_path / "a.npz"

    return save


def sparse_parts(**changes):
    matrix = scipy.sparse.csr_matrix(X)
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
    return {"y": [0, 1], **parts, **changes}


KEPT = {"f4": "f4", "f8": "f8", "i8": "f8", "u1": "f4", "i2": "f4", "f2": "f4", "?": "f4"}


@pytest.mark.parametrize(("given", "kept"), KEPT.items())
def test_dense_arrays_keep_their_precision(save, given, kept):
    raw = read(save(X=X.astype(given), y=[-1, 1]))
    np.testing.assert_array_equal(raw.inputs.dense, X.astype(given).astype(kept), strict=True)
    assert (raw.rows, raw.features, raw.label_lists) == (2, 3, None)
    assert raw.labels.tolist() == [-1, 1]
    assert raw.locate(1).endswith("a.npz: row 1")


def test_what_scipy_saves_with_labels_added_and_unsorted_indices(save, tmp_path):
    scipy.sparse.save_npz(tmp_path / "s.npz", scipy.sparse.csr_matrix(X))
    with np.load(tmp_path / "s.npz") as parts:
        raw = read(save(**parts, y=[0, 1]))
    assert to_dense(raw.inputs, raw.features).dense.tolist() == X.tolist()
    assert [array.dtype for array in raw.inputs] == [np.float32, np.int64, np.int32, np.float32]
    unsorted = sparse_parts(data=[1.5, 3, 2], indices=[1, 2, 0])
    assert read(save(**unsorted)).inputs.values.tolist() == [1.5, 2, 3]


@pytest.mark.parametrize(
    ("labels", "indptr", "indices", "hint"),
    [
        ({"y": [[0, 0, 0, 0], [1, 0, 1, 0]]}, [0, 0, 2], [0, 2], 4),
        ({"label_indptr": [0, 2, 3], "label_indices": [5, 1, 0]}, [0, 2, 3], [1, 5, 0], 0),
    ],
)
def test_lists_of_labels_are_a_matrix_of_marks_or_in_csr_form(save, labels, indptr, indices, hint):
    raw = read(save(X=X, **labels))
    assert (raw.labels, raw.classes_hint, raw.label_lists.indices.dtype) == (None, hint, np.int32)
    assert [each.tolist() for each in raw.label_lists] == [indptr, indices]


@pytest.mark.parametrize("y", [["no", "yes"], [False, True], [["b"], ["ä, 2"]]])
def test_labels_may_be_text_or_booleans_or_a_column_or_missing(save, y):
    raw = read(save(X=X, Y=y[::-1]))
    assert raw.labels.tolist() == [1, 0] and raw.labels.dtype == np.float64
    assert list(raw.label_names) == np.ravel(y).tolist()
    assert read(save(X=X)).labels is None


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": X, "y": [0, 1]}, "expected arrays X and y, or data.*; found x, y"),
        ({}, "found none"),
        ({"X": [1, 2]}, r"expected a matrix \[rows, features\]; got shape \(2,\)"),
        ({"X": [["a"]]}, "expected a matrix of numbers; could not"),
        ({"X": np.zeros((0, 3))}, "X: expected a row and a feature; got 0 x 3"),
        ({"X": [[1, 2], [3, np.nan]]}, "expected finite numbers; got nan in row 1, column 1"),
        ({"X": [[1, 1e39]]}, r"X: expected numbers within float32; got 1e\+39 in row 0, c"),
        ({"X": X, "y": [1, 2, 3]}, "y: expected the labels of 2 rows; got 3 labels"),
        ({"X": X, "y": 1}, "y: expected the labels of 2 rows; got one value"),
        ({"X": X, "y": [1, np.inf]}, "y: expected finite labels; got inf in row 1"),
        ({"X": X, "y": [b"a", b"b"]}, "y: expected numbers, text or booleans"),
        (
            {"X": X, "y": [["a", "b"], ["c", "d"]]},
            "y: expected one label per row, lists of la",
        ),
        ({"X": X, "y": np.zeros((2, 1, 2))}, "y: expected one label per row"),
        ({"X": X, "label_indptr": [0, 1], "label_indices": [1]}, "label_indptr: expected 3 nu"),
        ({"X": X, "label_indptr": [0, 2, 2], "label_indices": [1, 1]}, "occurs twice"),
        ({"X": X, "label_indptr": [0, 1, 2], "label_indices": [1, -1]}, "label_indices: expected"),
        (sparse_parts(format="csc"), "expected a sparse matrix in csr format; got csc"),
        (sparse_parts(shape=[2]), "shape: expected 2 numbers"),
        (sparse_parts(shape=[2, 2]), "indices: 2 is beyond the 2 features"),
        (sparse_parts(shape=[2, 2**40]), "shape: expected numbers from 0 to"),
        (sparse_parts(shape=[3, 3], indptr=[0, 2, 1, 3], y=[0, 1, 0]), "never decrease"),
        (sparse_parts(indptr=[0, 3, 2]), "indptr: expected 3 numbers from 0 to 3"),
        (sparse_parts(indptr=[1, 2, 3]), "indptr: expected 3 numbers from 0 to 3"),
        (sparse_parts(indptr=[0.0, 1.0, 3.0]), "indptr: expected a 1-d array of integers"),
        (sparse_parts(indices=[1, 2, 2]), r"row 1 has feature 2 twice"),
        (sparse_parts(data=[1, 2]), "data: expected 3 values, as in indices; got 2"),
        (sparse_parts(data=[1, 2, np.nan]), "expected finite numbers; got nan in row 1, column 2"),
    ],
)
def test_arrays_that_do_not_fit_are_named(save, arrays, complaint):
    path = save(**arrays)
    with pytest.raises(DataError, match=f"{path}: .*{complaint}"):
        read(path)


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([[object()]]), allow_pickle=True)
    assert "not an intact .npz file of plain arrays" in read_error(tmp_path / "a.npz")


def test_damaged_archives_are_data_errors_or_harmless(save):
    path = save(**sparse_parts())
    whole = path.read_bytes()
    for content in (b"", b"not a zip", whole[:100], whole[:-1], whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert "not an intact" in read_error(path)
    random = np.random.default_rng(3)
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with contextlib.suppress(DataError):
            read(path)


def test_an_archive_that_is_truncated_while_it_is_read_is_an_error(save, monkeypatch):
    path = save(X=np.random.default_rng(0).random((500, 99)), y=np.arange(500.0))
    load = np.load

    def truncating(file, **settings):
        archive = load(file, **settings)
        os.truncate(path, 1000)
        return archive

    monkeypatch.setattr(np, "load", truncating)
    assert "a.npz: not an intact .npz file of plain arrays: " in read_error(path)


DENSE = {"X": np.ones((400, 10), np.int64)}  # 32 kB, and again as float64
SPARSE = {
    "data": np.ones(4000),
    "indices": np.tile(np.arange(10, dtype=np.int32), 400),
    "indptr": np.arange(0, 4001, 10),
    "shape": (400, 10),
}


@pytest.mark.parametrize(
    ("arrays", "free", "purpose"),
    [
        (DENSE, (30_000,), "the arrays of .*"),
        (DENSE, (50_000, 10_000), "X as float64"),
        (SPARSE, (60_000, 10_000), "data as float32"),
    ],
)
def test_memory_is_checked_before_arrays_are_loaded_or_converted(
    save, monkeypatch, arrays, free, purpose
):
    path = save(**arrays, y=np.arange(400))
    monkeypatch.setattr(budget, "SMALL", 0)
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    left = iter(free)
    monkeypatch.setattr(budget, "free_memory", lambda: next(left, free[-1]))
    with pytest.raises(UsageError, match=f"of free memory for {purpose}; got"):
        read(path)


def test_read_only_rows_are_the_same_and_cannot_be_written():
    rows = examples(5, sparse=True, several=True)
    sealed = rows.read_only()
    assert (sealed.rows, sealed.features) == (rows.rows, rows.features)
    own, other = ((*each.inputs, *each.labels) for each in (rows, sealed))
    for one, same in zip(own, other, strict=True):
        assert np.array_equal(one, same) and (np.shares_memory(one, same) or not one.size)
        assert one.flags.writeable and not same.flags.writeable
