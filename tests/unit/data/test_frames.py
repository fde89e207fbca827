import numpy as np
import pandas
import polars
import pyarrow
import pytest

from hogbatch.data.frames import in_order, is_frame, keys_of, matrix_of, names_of
from hogbatch.errors import DataError, UsageError

COLUMNS = {"c": [1, 2], "z": [True, False], "a": [0.5, -1.5]}
KINDS = [pandas.DataFrame, polars.DataFrame, pyarrow.table, pyarrow.RecordBatch.from_pydict, dict]


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_any_kind_are_a_matrix_and_their_columns_are_put_in_order(kind):
    frame = kind(COLUMNS)
    assert is_frame(frame) and names_of(frame) == ("c", "z", "a")
    matrix = matrix_of(frame, "X")
    assert matrix.dtype == np.float64 and matrix.tolist() == [[1, 1, 0.5], [2, 0, -1.5]]
    assert keys_of(in_order(frame, ("a", "c"))) == ["a", "c"]
    with pytest.raises(DataError, match=r"the data frame: expected the 3 features .* 'b', 'd'$"):
        in_order(frame, ("a", "b", "d"))


def test_columns_that_are_only_numbered_keep_their_place_unless_the_features_are_too():
    numbered = pandas.DataFrame([[1, 2, 3]])
    assert names_of(numbered) == ()
    assert in_order(numbered, ("a", "b", "c")) is numbered
    assert keys_of(in_order(numbered[[2, 0, 1]], ("0", "1", "2"))) == [0, 1, 2]


def test_kinds_of_numbers_and_names_that_occur_twice():
    small = pandas.DataFrame({"a": np.float32([1, 2]), "b": np.int8([1, 2])})
    assert matrix_of(small, "X").dtype == np.float32
    mixed = pandas.DataFrame({"a": pandas.array([1, 2], "Int64"), "b": np.array([1, 2.5], "O")})
    assert matrix_of(mixed, "X").tolist() == [[1, 1], [2, 2.5]]
    twice = pandas.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    assert matrix_of(twice, "X").tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("column", "got"),
    [
        (["x", "y"], "something else"),
        (np.array(["2020", "2021"], "M8[D]"), "something else"),
        ([1.0, np.nan], r"a missing value in row 1 \(counted from 0\)"),
        (pandas.array([None, 1], "Int64"), "a missing value in row 0"),
    ],
)
def test_other_columns_are_named(column, got):
    frame = pandas.DataFrame({"a": [1, 2], "b": column})
    message = f"X: column 'b': expected numbers without gaps; got {got}"
    with pytest.raises(UsageError, match=message):
        matrix_of(frame, "X")


def test_the_columns_of_a_dictionary_have_one_length():
    with pytest.raises(UsageError, match=r"expected columns of one length; got \{'a': 2, 'b': 1\}"):
        matrix_of({"a": [1, 2], "b": [3]}, "X")
