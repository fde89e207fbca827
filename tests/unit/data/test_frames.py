import datetime
import math

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from scipy import sparse

from hogbatch.data.frames import FEW_CELLS, is_frame, matrix_of, table_of
from hogbatch.data.load import prepare
from hogbatch.data.memory import raw_set
from hogbatch.data.order import Fractions, split
from hogbatch.data.table.columns import CategoryColumn
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.given import encode, training_set
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import DataError, UsageError

COLUMNS = {"c": [1, 2], "z": [True, False], "a": [0.5, -1.5]}
KINDS = [pandas.DataFrame, polars.DataFrame, pyarrow.table, pyarrow.RecordBatch.from_pydict, dict]


def cells(values):
    """The cells of a column as a list; None where missing."""
    column = table_of({"a": values}).columns[0]
    if isinstance(column, CategoryColumn):
        return [None if code < 0 else column.values[code] for code in column.codes]
    numbers = column.values
    return [None if np.isnan(number) else number for number in numbers]


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_any_kind_are_a_matrix_and_their_columns_are_put_in_order(kind):
    frame = kind(COLUMNS)
    assert is_frame(frame) and table_of(frame).names == ("c", "z", "a")
    matrix = matrix_of(frame, "X")
    assert matrix.dtype == np.float64 and matrix.tolist() == [[1, 1, 0.5], [2, 0, -1.5]]
    assert matrix_of(frame, "X", ("a", "c")).tolist() == [[0.5, 1], [-1.5, 2]]
    with pytest.raises(DataError, match=r"the data frame: expected the 3 features .* 'b', 'd'$"):
        matrix_of(frame, "X", ("a", "b", "d"))


def test_columns_that_are_only_numbered_keep_their_place_unless_the_features_are_too():
    numbered = pandas.DataFrame([[1, 2, 3]])
    assert matrix_of(numbered, "X", ("a", "b", "c")).tolist() == [[1, 2, 3]]
    assert matrix_of(numbered[[2, 0, 1]], "X", ("0", "1", "2")).tolist() == [[1, 2, 3]]
    twice = pandas.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    assert matrix_of(twice, "X").tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", ">i4", "u8", "?", "O"])
def test_numbers_may_have_any_type(dtype):
    assert cells(np.array([1, 0], dtype)) == [1, 0]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pandas.array([1, None], "Int64"), [1, None]),
        (pandas.Series([pandas.NA, "u"], dtype=object), [None, "u"]),
        (pandas.Series([pandas.NA, "u", 1], dtype=object), [None, "u", "1"]),
        (pandas.Categorical([3, 1, None]), ["3", "1", None]),
        ([1.5, None], [1.5, None]),
        (["u", 2**70, None], ["u", str(2**70), None]),
        (np.array(["u", "v"]), ["u", "v"]),
        (polars.Series(["u", None]), ["u", None]),
    ],
)
def test_values_that_are_missing_or_of_several_types(column, expected):
    assert cells(column) == expected


@pytest.mark.parametrize(
    "zone",
    [
        pandas.Categorical([7, 8, 9, 7]),
        polars.Series(["7", "8", "9", "7"], dtype=polars.Categorical),
        pyarrow.array(["7", "8", "9", "7"]).dictionary_encode(),
    ],
)
def test_numbers_of_a_categorical_type_are_categories_unless_requested(zone):
    for numeric, kind in (((), "category"), (("zone",), "number")):
        read = training_set({"zone": zone}, [1, 2, 1, 2], None, TableOptions(numeric=numeric))
        assert read.table.kinds == {0: kind}


@pytest.mark.parametrize(
    "column",
    [
        np.array(["1970-01-02"], "M8[D]"),
        [datetime.date(1970, 1, 2)],
        [datetime.datetime(1970, 1, 2)],
        pandas.Series(["1970-01-02"], dtype="datetime64[ns, UTC]"),
        pandas.Series(["1970-01-02 00:00:00+00:00"], dtype="datetime64[s, UTC]"),
        polars.Series([datetime.date(1970, 1, 2)]),
        np.array([86400], "m8[s]"),
    ],
)
def test_times_of_any_type_are_seconds(column):
    assert cells(column) == [86_400]


@pytest.mark.parametrize(
    ("column", "got"),
    [
        (["x", "y"], "something else"),
        (np.array(["2020", "2021"], "M8[D]"), "something else"),
        ([1.0, np.nan], r"a missing value in row 1 \(counted from 0\)"),
        (pandas.array([None, 1], "Int64"), "a missing value in row 0"),
    ],
)
def test_columns_that_a_matrix_cannot_hold_are_named(column, got):
    frame = pandas.DataFrame({"a": [1, 2], "b": column})
    message = f"X: column 'b': expected numbers without gaps; got {got}"
    with pytest.raises(UsageError, match=message):
        matrix_of(frame, "X")


def test_columns_that_cannot_be_read_are_named():
    with pytest.raises(
        UsageError, match=r"expected columns of one length, .*; got \{'a': 2, 'b': 1\}"
    ):
        table_of({"a": [1, 2], "b": [3]})
    with pytest.raises(UsageError, match="column 'a': expected one dimension; got 2"):
        table_of({"a": np.ones((2, 2))})
    for lists in (pandas.Series([[1], [2]]), polars.Series([[1], [2]]), [{"k": 1}, {"k": 2}]):
        with pytest.raises(DataError, match="column 'a': expected numbers, text or dates; got"):
            table_of({"a": lists})


def test_columns_that_are_not_used_may_contain_anything():
    frame = pandas.DataFrame({"a": [1, 2], "lists": [[1], [2]]})
    raw = training_set(frame, [0, 1], None, TableOptions(drop=("lists",)))
    encoding = TableEncoding.fit(raw.table, None, "none")
    assert encode(frame, encoding, "X").dense.tolist() == [[1], [2]]
    assert matrix_of(frame, "X", ("a",)).tolist() == [[1], [2]]


def test_a_column_that_is_constant_in_training_is_not_a_feature():
    frame = pandas.DataFrame({"a": range(10), "b": 0.0, "c": [1, 2] * 5})
    raw = training_set(frame, [0, 1] * 5, None, TableOptions())
    assert raw.table.kinds == {0: "number", 2: "number"}
    assert raw.notes == ("columns: 2 numeric columns (a, c); not used: b (constant)",)


def test_a_column_that_varies_only_in_test_rows_is_not_a_feature():
    cells = np.zeros((50, 2))
    cells[:, 1] = range(50)
    testing = split(50, Fractions(0.2), classes=np.float32([0, 1] * 25))["test"]
    cells[testing[0], 0] = 1
    loaded = prepare(training_set(cells, [0, 1] * 25, None, TableOptions()))
    assert loaded.train.features == loaded.sets["test"].features == 1
    assert "not used, constant in the training rows: 0" in loaded.notes
    with pytest.raises(DataError, match="X: all columns are constant in the training rows"):
        prepare(training_set(cells[:, :1], [0, 1] * 25, None, TableOptions()))


@pytest.mark.parametrize("rows", [np.array, sparse.csr_matrix, pandas.DataFrame])
def test_rows_of_weight_0_are_as_if_absent(rows):
    cells = np.arange(60.0).reshape(20, 3) % 7
    absent = np.vstack([[1e6, 2e6, 3e6], cells])
    weights, y = np.arange(1.0, 21), np.arange(20) % 2

    def loaded(cells, y, weights):
        if rows is sparse.csr_matrix:
            return prepare(raw_set(rows(cells), y, weights))
        return prepare(training_set(rows(cells), y, weights, TableOptions()))

    found = loaded(absent, [5, *y], [0, *weights])
    assert found.fingerprint == loaded(cells, y, weights).fingerprint
    equal = loaded(absent, [5, *y], [0, *np.ones(20)])
    assert not len(equal.train.labels.weights)
    assert equal.fingerprint == loaded(cells, y, None).fingerprint


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, r"expected a matrix \[rows, features\] or a data frame; got NoneType"),
        ([1, 2], r"or a data frame; got shape \(2,\) of int64"),
        (np.ones((2, 2), complex), r"or a data frame; got shape \(2, 2\) of complex128"),
        ([[1, 2], [3]], "expected rows of one length"),
        ({"a": [1, 2], "b": 3}, r"or the cells of one row; got \{'a': 2, 'b': 1\}"),
    ],
)
def test_other_values_are_refused(values, message):
    with pytest.raises(UsageError, match=message):
        table_of(values)


def test_masked_numbers_are_missing():
    masked = np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    first, second = table_of(masked).columns.values()
    assert first.values.tolist() == [1, 3] and second.missing.tolist() == [True, False]


def test_a_dictionary_of_cells_is_one_row_and_a_missing_key_a_missing_cell():
    frame = {"a": [1.0, 2.0, 3.0] * 4, "c": ["x", "y", "z"] * 4}
    encoding = prepare(training_set(frame, [0, 1] * 6, None, TableOptions())).table
    first = encode(frame, encoding, "X").dense[:1].tolist()
    assert encode({"a": 1.0, "c": "x"}, encoding, "X").dense.tolist() == first
    both = encode([{"c": "x", "a": 1.0}, {"a": 2.0}], encoding, "X").dense
    assert both[:1].tolist() == first and len(both) == 2
    with pytest.raises(UsageError, match="X: expected 2 features, as in the training data; got 3"):
        encode(np.ones((1, 3)), encoding, "X")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_infinite_number_of_a_matrix_is_named(dtype):
    numbers = np.arange(40, dtype=dtype).reshape(20, 2)
    assert training_set(numbers, [0, 1] * 10, None, TableOptions()).rows == 20
    numbers[3, 1] = np.inf
    with pytest.raises(DataError, match=r"row 3: column '1': expected a finite number .*got inf"):
        training_set(numbers, [0, 1] * 10, None, TableOptions())


@pytest.mark.parametrize("rows", [1, FEW_CELLS, FEW_CELLS + 1])
def test_cells_are_the_same_however_they_are_given(rows):
    """Found: lists, series and columns of Arrow that are converted in different ways."""
    given = {
        "float": [1.5, None, math.nan, 2.5],
        "whole": [3, 1, 2, 2],
        "text": [" b", "a", "b ", "NA"],
        "gaps": ["x", None, "", "y"],
        "truth": [True, False, True, True],
    }
    columns = {name: (cells * rows)[:rows] for name, cells in given.items()}
    frame = pandas.DataFrame(columns)
    alike = [columns, frame, pyarrow.table(columns), frame.to_dict("records"), frame.astype(object)]
    first, *others = [table_of(each).columns for each in alike]
    for other in others:
        for position, column in first.items():
            found = other[position]
            assert type(found) is type(column)
            np.testing.assert_array_equal(found.missing, column.missing)
            if isinstance(column, CategoryColumn):
                assert [found.values[n] for n in found.codes if n >= 0] == [
                    column.values[n] for n in column.codes if n >= 0
                ]
            else:
                np.testing.assert_array_equal(found.values, column.values)
                assert (found.boolean, found.whole) == (column.boolean, column.whole)


def test_numbers_of_numpy_among_text_are_not_missing():
    given = [np.float64(1.5), "x", np.int64(2), np.float64("nan")]
    assert cells(given) == ["1.5", "x", "2", None]
