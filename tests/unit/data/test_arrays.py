import contextlib
import os

import numpy as np
import pytest
import scipy.sparse

from hogbatch.data.csr import to_dense
from hogbatch.errors import DataError, UsageError
from hogbatch.machine import budget
from tests.support.assignments import examples
from tests.support.reading import read

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


def test_dense_arrays(save):
    raw = read(save(X=X, y=[-1, 1]))
    assert raw.inputs.dense.tolist() == X.tolist()
    assert raw.labels.tolist() == [-1, 1]
    assert (raw.rows, raw.features, raw.label_lists) == (2, 3, None)
    assert raw.locate(1).endswith("a.npz: row 1")


@pytest.mark.parametrize(
    ("given", "kept"),
    [(np.float32, np.float32), (np.float64, np.float64), (np.int64, np.float64)]
    + [(dtype, np.float32) for dtype in (np.uint8, np.int16, np.float16, np.bool_)],
)
def test_dense_arrays_keep_their_precision(save, given, kept):
    values = X.astype(given)
    dense = read(save(X=values, y=[-1, 1])).inputs.dense
    np.testing.assert_array_equal(dense, values.astype(kept), strict=True)


def test_a_column_of_labels_is_one_label_a_row(save):
    assert read(save(X=X.astype(np.int8), Y=np.array([[2], [3]], np.uint8))).labels.tolist() == [
        2,
        3,
    ]


def test_what_scipy_saves_with_labels_added(save, tmp_path):
    scipy.sparse.save_npz(tmp_path / "s.npz", scipy.sparse.csr_matrix(X))
    with np.load(tmp_path / "s.npz") as parts:
        raw = read(save(**parts, y=[0, 1]))
    assert to_dense(raw.inputs, raw.features).dense.tolist() == X.tolist()
    assert [array.dtype for array in raw.inputs] == [np.float32, np.int64, np.int32, np.float32]


def test_unsorted_indices_are_sorted(save):
    parts = sparse_parts(data=[1.5, 3, 2], indices=[1, 2, 0])
    assert read(save(**parts)).inputs.values.tolist() == [1.5, 2, 3]


def test_a_matrix_of_marks_is_lists_of_labels(save):
    raw = read(save(X=X, y=[[0, 0, 0, 0], [1, 0, 1, 0]]))
    assert raw.labels is None
    assert raw.classes_hint == 4
    assert raw.label_lists.indptr.tolist() == [0, 0, 2]
    assert raw.label_lists.indices.tolist() == [0, 2]


def test_lists_of_labels_in_csr_form(save):
    raw = read(save(X=X, label_indptr=[0, 2, 3], label_indices=[5, 1, 0]))
    assert raw.label_lists.indices.tolist() == [1, 5, 0]
    assert raw.label_lists.indices.dtype == np.int32


@pytest.mark.parametrize("y", [["no", "yes"], [False, True], [["b"], ["ä, 2"]]])
def test_labels_may_be_text_or_booleans(save, y):
    raw = read(save(X=X, y=y[::-1]))
    assert raw.labels.tolist() == [1, 0] and raw.labels.dtype == np.float64
    assert list(raw.label_names) == np.ravel(y).tolist()


def test_labels_may_be_missing(save):
    raw = read(save(X=X))
    assert (raw.labels, raw.label_lists) == (None, None)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": X, "y": [0, 1]}, "expected arrays X and y, or data.*; found x, y"),
        ({}, "found none"),
        ({"X": [1, 2]}, "X: expected 2-d real numbers; got 1-d"),
        ({"X": [["a"]]}, "X: expected 2-d real numbers"),
        ({"X": X * 1j}, "X: expected 2-d real numbers"),
        ({"X": np.zeros((0, 3))}, "at least one row and one feature; got 0 x 3"),
        ({"X": np.zeros((3, 0))}, "at least one row and one feature; got 3 x 0"),
        ({"X": [[1, 2], [3, np.nan]]}, r"X\[1, 1\]: expected a finite number.*; got nan"),
        ({"X": [[1, 1e39]]}, r"X\[0, 1\]: expected a finite number.*; got 1e\+39"),
        ({"X": X, "y": [1, 2, 3]}, r"y: expected labels for 2 rows; got shape \(3,\)"),
        ({"X": X, "y": 1}, "y: expected labels for 2 rows"),
        ({"X": X, "y": [1, np.inf]}, r"y\[1\]: expected a finite number"),
        ({"X": X, "y": [b"a", b"b"]}, "y: expected 1-d real numbers"),
        ({"X": X, "y": [[1, 2], [3, 4]]}, "y: expected a matrix of 0 and 1"),
        ({"X": X, "y": [["a", "b"], ["c", "d"]]}, "y: expected a matrix of 0 and 1"),
        ({"X": X, "y": np.zeros((2, 1, 2))}, "y: expected labels for 2 rows"),
        (
            {"X": X, "label_indptr": [0, 1], "label_indices": [1]},
            "label_indptr: expected 3 numbers",
        ),
        ({"X": X, "label_indptr": [0, 2, 2], "label_indices": [1, 1]}, "occurs twice"),
        ({"X": X, "label_indptr": [0, 1, 2], "label_indices": [1, -1]}, "label_indices: expected"),
        (sparse_parts(format="csc"), "expected a sparse matrix in csr format; got csc"),
        (sparse_parts(shape=[2]), "shape: expected 2 numbers"),
        (sparse_parts(shape=[2, 2]), "indices: 2 is beyond the 2 features"),
        (sparse_parts(shape=[2, 2**40]), "shape: expected numbers from 0 to"),
        (sparse_parts(shape=[3, 3]), "indptr: expected 4 numbers"),
        (sparse_parts(indptr=[0, 3, 2]), "indptr: expected 3 numbers from 0 to 3"),
        (sparse_parts(indptr=[1, 2, 3]), "indptr: expected 3 numbers from 0 to 3"),
        (sparse_parts(indptr=[0.0, 1.0, 3.0]), "indptr: expected a 1-d array of integers"),
        (sparse_parts(indices=[0, -1, 2]), "indices: expected numbers from 0"),
        (sparse_parts(indices=[1, 2, 2]), r"row 1 has feature 2 twice"),
        (sparse_parts(data=[1, 2]), "data: expected 3 values, as in indices; got 2"),
        (sparse_parts(data=[1, 2, np.nan]), r"data\[2\]: expected a finite number"),
    ],
)
def test_arrays_that_do_not_fit_are_named(save, arrays, complaint):
    path = save(**arrays)
    with pytest.raises(DataError, match=f"{path}: .*{complaint}"):
        read(path)


def test_pointers_never_fall(save):
    parts = sparse_parts(shape=[3, 3], indptr=[0, 2, 1, 3], y=[0, 1, 0])
    with pytest.raises(DataError, match="never decrease"):
        read(save(**parts))


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([[object()]]), allow_pickle=True)
    with pytest.raises(DataError, match=r"not an intact \.npz file of plain arrays"):
        read(tmp_path / "a.npz")


def test_a_single_array_is_no_archive(tmp_path):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(DataError, match="got a single NumPy array"):
        read(tmp_path / "a.npz")


def test_missing_and_directory(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "a.npz")
    (tmp_path / "a.npz").mkdir()
    with pytest.raises(DataError, match="expected a file, or a folder of table files"):
        read(tmp_path / "a.npz")


def test_damaged_archives_are_data_errors_or_harmless(save):
    path = save(**sparse_parts())
    whole = path.read_bytes()
    for content in (b"", b"not a zip", whole[:100], whole[:-1], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not an intact"):
            read(path)
    random = np.random.default_rng(3)
    for _ in range(300):
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
    with pytest.raises(DataError, match=r"a\.npz: not an intact \.npz file of plain arrays: "):
        read(path)


@pytest.mark.parametrize("rows", [400, 1])
def test_memory_is_checked_before_arrays_are_loaded(save, monkeypatch, rows):
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    monkeypatch.setattr(budget, "free_memory", lambda: 30_000 if rows > 1 else 100)
    path = save(X=np.ones((rows, 10)), y=np.arange(rows))
    with pytest.raises(UsageError, match=r"of free memory for the arrays of .*a\.npz; got"):
        read(path)
    monkeypatch.setattr(budget, "free_memory", lambda: 10**6)
    assert read(path).rows == rows


def test_memory_is_checked_before_arrays_are_converted(save, monkeypatch):
    path = save(X=np.ones((400, 10), np.int64), y=np.arange(400))  # 32 kB, and again as float64
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    free = iter([50_000, 10_000, 10_000])
    monkeypatch.setattr(budget, "free_memory", lambda: next(free))
    with pytest.raises(UsageError, match=r"a\.npz: expected 32 kB of free memory for X as float64"):
        read(path)


def test_read_only_rows_are_the_same_and_cannot_be_written():
    rows = examples(5, sparse=True, several=True)
    sealed = rows.read_only()
    assert (sealed.rows, sealed.features) == (rows.rows, rows.features)
    for arrays in ("inputs", "labels"):
        for own, other in zip(getattr(rows, arrays), getattr(sealed, arrays), strict=True):
            assert np.shares_memory(own, other) or own.size == 0
            assert np.array_equal(own, other)
            assert own.flags.writeable and not other.flags.writeable
