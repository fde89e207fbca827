from decimal import Decimal

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import scipy.sparse

from hogbatch.data.batch import DoubleInputs, Inputs
from hogbatch.data.load import prepare
from hogbatch.data.memory import raw_set
from hogbatch.data.weights import weights_of
from hogbatch.errors import DataError, UsageError

X = np.array([[0.0, 1.5, 0.0], [2.0, 0.0, 3.0], [0.0, 0.0, 1.0]])
Y = [0, 1, 0]
MARKS = np.array([[1, 0], [0, 0], [1, 1]])
sparse = scipy.sparse.csr_array


@pytest.mark.parametrize("kind", ["csr", "coo"])
def test_sparse_matrices_of_any_format_are_rows(kind):
    raw = raw_set(scipy.sparse.coo_array(X).asformat(kind), Y)
    assert (raw.rows, raw.features) == (3, 3)
    assert [each.tolist() for each in raw.inputs[1:]] == [
        [0, 1, 3, 4],
        [1, 0, 2, 2],
        [1.5, 2, 3, 1],
    ]
    assert [array.dtype for array in raw.inputs] == ["f4", "i8", "i4", "f4"]


def test_values_stored_twice_are_added_and_the_matrix_of_the_caller_stays():
    given = sparse((np.ones(3), np.array([2, 0, 2]), np.array([0, 3])))
    raw = raw_set(given, [0])
    assert raw.inputs.indices.tolist() == [0, 2] and raw.inputs.values.tolist() == [1, 2]
    assert given.indices.tolist() == [2, 0, 2]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "?", "O", ">f8"])
def test_dense_arrays_may_have_any_real_dtype(dtype):
    raw = raw_set((X > 1).astype(dtype), Y)
    assert raw.inputs.dense.tolist() == (X > 1).tolist()
    assert isinstance(raw.inputs, Inputs if dtype in ("f2", "f4", "?") else DoubleInputs)


def test_lists_frames_and_arrays_are_matrices_and_arrays_are_not_copied():
    assert np.shares_memory(raw_set(X, Y).inputs.dense, X)
    assert raw_set(X.tolist(), Y).inputs.dense.tolist() == X.tolist()
    raw = raw_set(pandas.DataFrame(X, columns=["a", "b", "c"]), pandas.Series(Y, index=[7, 8, 9]))
    assert raw.inputs.dense.tolist() == X.tolist()
    labels = pandas.DataFrame({"label": ["u", "v", "u"]})  # one column is one label per row
    assert raw_set(X, labels).label_names == ("u", "v")


@pytest.mark.parametrize(
    ("y", "labels", "names"),
    [
        ([3, 1.5, 3], [3, 1.5, 3], ()),
        (np.array([[1], [2], [1]]), [1, 2, 1], ()),
        ([True, False, True], [1, 0, 1], (False, True)),
        (np.array(["b", "a", "b"], object), [1, 0, 1], ("a", "b")),
        (np.array([1, np.float32(2), np.int64(1)], object), [1.0, 2.0, 1.0], ()),
        ([Decimal("1.5"), Decimal(2), Decimal(1)], [1.5, 2, 1.0], ()),
        (pandas.Series([3, 1, 3], dtype="Int64"), [3, 1, 3], ()),
        (pandas.Series([True, False, True], dtype="boolean"), [1, 0, 1], (False, True)),
        (np.array([1, 2, 1], "u1"), [1, 2, 1], ()),
        ([2**53 - 1, 1 - 2**53, 5], [2**53 - 1, 1 - 2**53, 5], ()),
        ([2**53, 2**53 + 1, 5], [1, 2, 0], ("5", str(2**53), str(2**53 + 1))),
        (np.array([2**63, 2**63 + 1, 5], "u8"), [1, 2, 0], ("5", str(2**63), str(2**63 + 1))),
        ([2**63, 2**63 + 1, -5], [1, 2, 0], ("-5", str(2**63), str(2**63 + 1))),
        ([2**70, 2**70 + 1, 5], [0, 1, 2], (str(2**70), str(2**70 + 1), "5")),
        ([1e300, 2, 1], [1e300, 2, 1], ()),
        (pandas.Series(["b", "a", "b"], dtype="category"), [1, 0, 1], ("a", "b")),
        (pandas.DataFrame({"y": [1, 2, 1]}), [1, 2, 1], ()),
        (polars.Series(["b", "a", "b"]), [1, 0, 1], ("a", "b")),
        (pyarrow.chunked_array([["b", "a"], ["b"]]), [1, 0, 1], ("a", "b")),
    ],
)
def test_labels_are_numbers_text_or_booleans(y, labels, names):
    raw = raw_set(X, y)
    assert (raw.labels.tolist(), raw.label_names, raw.label_lists) == (labels, names, None)
    whole = not names and all(isinstance(label, int) for label in labels)
    assert raw.labels.dtype == (np.int64 if whole else np.float64)


@pytest.mark.parametrize(
    ("y", "hint"),
    [
        (MARKS.tolist(), 2),
        (scipy.sparse.csc_array(MARKS), 2),
        (pandas.DataFrame(MARKS), 2),
        ([{0}, set(), {0, 1}], 0),
        (pandas.Series([[0], [], [0, 1]]), 0),
        ([(np.int64(0),), (), (1, 0)], 0),
    ],
)
def test_label_lists_are_a_matrix_of_marks_or_lists(y, hint):
    raw = raw_set(X, y)
    assert raw.label_lists.indptr.tolist() == [0, 1, 1, 3]
    assert raw.label_lists.indices.tolist() == [0, 0, 1]
    assert (raw.label_lists.indices.dtype, raw.classes_hint) == (np.int32, hint)


def test_lists_of_one_length_are_lists_unless_they_are_marks():
    assert raw_set(X, [[0, 2], [1, 3], [0, 1]]).label_lists.indices.tolist() == [0, 2, 1, 3, 0, 1]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[0, 1], [2, np.nan]], [0, 1], "got nan in row 1, column 1"),
        (sparse([[0, np.inf]]), [0], "got inf in row 0, column 1"),
        ([[0, 1e39]], [0], r"X: expected numbers within float32; got 1e\+39 in row 0, column 1"),
        (sparse([[0, -1e39]]), [0], r"got -1e\+39 in row 0, column 1"),
        ([["a"]], [0], "expected a matrix of numbers"),
        ([1, 2], [0, 1], r"got shape \(2,\)"),
        (np.zeros((0, 3)), [], "X: expected a row and a feature; got 0 x 3"),
        ([[1, 5], [2, 2**53]], [0, 1], "below 2.53; got 9007199254740992 in row 1, column 1"),
        (X, None, "y is missing: expected the labels of 3 rows"),
        (X, [0, 1], "y: expected the labels of 3 rows; got 2 labels"),
        (X, 4, "y: expected the labels of 3 rows; got one value"),
        (X, [[0], [1, 2]], "y: expected the labels of 3 rows; got 2"),
        (X, scipy.sparse.eye_array(2), "y: expected the labels of 3 rows; got 2"),
        (X, scipy.sparse.eye_array(3) * 2, "y: expected a sparse matrix of 0 and 1; got 2"),
        (X, [0, 1, np.inf], "y: expected finite labels; got inf in row 2"),
        (X, [None, np.nan, np.nan], "y: expected labels; got none in any row"),
        (X, [None, b"a", "b"], "y: expected a number, text or a boolean; got b'a' in row 1"),
        (X, [None, "a", 1], "got 'a' in row 1 and 1 in row 2"),
        (X, np.array(["a", 1, "b"], object), "labels of one kind; got 'a' in row 0 and 1 in row 1"),
        (X, [1j, 0, 1], "y: expected numbers, text or booleans; got complex128"),
        (X, np.full((3, 2), "a"), r"or a matrix of numbers; got an array of <U1 and shape"),
        (
            X,
            np.array([[0.5, 1], [2, np.inf], [1, 1]]),
            "y: expected finite labels; got inf in row 1",
        ),
        (X, [[0], [-1], [1, 0]], r"whole numbers from 0; got \[-1\] in row 1"),
        (X, [[0], [1, 1], []], r"different whole numbers from 0; got \[1, 1\] in row 1"),
        (X, [["a"], [], ["b", "c"]], r"whole numbers from 0; got \['a'\] in row 0"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(x, y, message):
    with pytest.raises(UsageError, match=message):
        raw_set(x, y)


def test_the_test_rows_are_named():
    other = raw_set(X, ["a", "b", "c"], suffix="_test")
    with pytest.raises(DataError, match=r"X_test, y_test: row 2: label 'c' does not occur"):
        prepare(raw_set(X, ["a", "b", "a"]), {"test": lambda _: other})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"one number for each of 3 rows; got shape \(2,\)"),
        ([1, -1, 2], "at least 0; got -1 in row 1"),
        ([1, 1, np.nan], "at least 0; got nan in row 2"),
        ([1, 1, np.inf], "at least 0; got inf in row 2"),
        ([0, 0, 0], "expected a weight above 0; got only zeros"),
        (["a", "b", "c"], "sample_weight: expected numbers"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(weights, message):
    with pytest.raises(UsageError, match=message):
        weights_of(weights, 3)


def test_weights_follow_their_rows_and_are_part_of_the_fingerprint():
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    loaded = prepare(raw_set(x, y, pandas.Series(np.arange(20))), scale="none")
    assert sum(part.rows for part in loaded.sets.values()) == 19
    mean = loaded.train.inputs.dense[:, 0].mean()
    for part in loaded.sets.values():
        np.testing.assert_allclose(part.labels.weights, part.inputs.dense[:, 0] / mean, rtol=1e-6)
    plain, equal = (prepare(raw_set(x, y, each), scale="none") for each in (None, np.ones(20)))
    assert not len(plain.train.labels.weights) and not len(equal.train.labels.weights)
    assert loaded.fingerprint != plain.fingerprint == equal.fingerprint
