from datetime import UTC, datetime

import numpy as np
import pytest

from hogbatch.data.table.columns import CategoryColumn, DateColumn, NumberColumn, Table, TextColumn
from hogbatch.data.table.dates import format_of, seconds_in
from hogbatch.data.table.kinds import TableOptions, inspect
from hogbatch.data.table.typed import typed
from hogbatch.errors import DataError

ROWS = 30
NAN = float("nan")


def kinds(options=TableOptions(), **columns):  # noqa: B008 (frozen)
    """The kinds of columns given as lists of cells, and the inspected table; a label is added."""
    columns["label"] = np.arange(len(next(iter(columns.values())))) % 2
    converted = {
        n: CategoryColumn.of_cells(cells)
        if any(isinstance(cell, str) for cell in cells)
        else NumberColumn(np.array(cells, np.float64))
        for n, cells in enumerate(columns.values())
    }
    names = tuple(columns)
    inspected = inspect(Table("t", names, converted), options, (len(names) - 1,))
    return {names[n]: kind for n, kind in inspected.kinds.items()}, inspected


def test_kinds_follow_from_the_cells_and_words_for_missing_values_have_none():
    found, inspected = kinds(
        a=[1, 2.5, NAN, 3, 4, 5],
        b=["x", "y", "x", "y", "x", "y"],
        c=["1", "n/a", "-", "null", "NaN", " 5"],
        d=["2013-01-01", "2013-02-01", "?", "NA", "", "2013-01-01"],
    )
    assert found == {"a": "number", "b": "category", "c": "number", "d": "date"}
    numbers = inspected.table.columns[2].values
    np.testing.assert_array_equal(numbers, [1, NAN, NAN, NAN, NAN, 5])


def test_constant_columns_empty_columns_and_columns_that_identify_rows_are_not_used():
    found, inspected = kinds(
        id=list(range(5, 5 + ROWS)),
        name=[f"no. {n}" for n in range(ROWS)],
        empty=[NAN] * ROWS,
        same=["x"] * ROWS,
        one=[1] * ROWS,
        year=list(range(1990, 1990 + ROWS)),
        paid=[1, 2] * (ROWS // 2),
        gaps=["x", "NA"] * (ROWS // 2),
    )
    assert found == {"year": "number", "paid": "number", "gaps": "category"}
    assert inspected.note == (
        "columns: 2 numeric columns (year, paid), 1 categorical column (gaps); not used: "
        "id (numbers the rows; --numeric uses it), name (text that differs in nearly every row; "
        "--text or --categorical uses it), empty (no values), same (constant), one (constant)"
    )


def test_flags_choose_the_kind_by_name_or_number():
    options = TableOptions(drop=("3",), categorical=("month",), numeric=("id",), text=("name",))
    found, inspected = kinds(
        options,
        id=list(range(ROWS)),
        name=[f"no. {n}" for n in range(ROWS)],
        month=[1, 2, 3] * 10,
        x=[1, 2] * 15,
    )
    assert found == {"id": "number", "name": "text", "month": "category"}
    assert isinstance(inspected.table.columns[1], TextColumn)
    assert inspected.table.columns[2].values == ["1", "2", "3"]
    assert inspected.note.endswith("; not used: x (--drop)")


def test_few_words_among_numbers_and_infinite_numbers_are_unexpected():
    _, inspected = kinds(a=[*(str(n) for n in range(39)), "many"], b=[1, np.inf, 2, 3] * 10)
    words, infinite = inspected.unexpected
    assert (words.rows.tolist(), words.position, words.word) == ([39], 0, True)
    assert words.complaint == "column 'a': expected a number; got 'many'"
    assert infinite.rows.tolist() == list(range(1, 40, 4))
    found, inspected = kinds(a=[*(str(n % 9) for n in range(36)), "J", "Q", "K", "A"])
    assert (found, inspected.unexpected) == ({"a": "category"}, ())


def test_dates_may_be_numbers():
    columns = {0: DateColumn(np.array([0.0, 86400])), 1: NumberColumn(np.arange(2.0))}
    found = Table("t", ("a", "y"), columns)
    assert inspect(found, TableOptions(), (1,)).kinds == {0: "date"}
    inspected = inspect(found, TableOptions(numeric=("a",)), (1,))
    assert inspected.table.columns[0].values.tolist() == [0, 86400]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (TableOptions(drop=("z",)), "t has no column 'z': its columns are a, a, label"),
        (TableOptions(text=("label",)), "column 'label' is the label column"),
        (TableOptions(text=("1",), drop=("1",)), "column '1' is named in two of --drop"),
        (TableOptions(drop=("a",)), r"columns 0 and 1 .* are both named 'a'"),
    ],
)
def test_flags_that_do_not_fit_the_table(options, complaint):
    columns = {n: NumberColumn(np.arange(2.0)) for n in range(3)}
    with pytest.raises(DataError, match=complaint):
        inspect(Table("t", ("a", "a", "label"), columns), options, (2,))


def test_cells_that_are_no_dates_are_reported_and_the_others_are_read():
    days = ["1970-01-02", "", "soon", "1970-01-03", "never", "soon"]
    table = Table("a", ("day",), {0: CategoryColumn.of_cells(days)})
    column, unexpected = typed(table, 0, "date")
    np.testing.assert_array_equal(column.values / 86_400, [1, np.nan, np.nan, 2, np.nan, np.nan])
    assert unexpected.rows.tolist() == [2, 4, 5]
    assert unexpected.complaint == "column 'day': expected a date; got 'soon'"
    mixed = CategoryColumn.of_cells(["2/3/2020", "1/13/2020", "13/1/2020"])
    for cells, wrong in ((NumberColumn(np.ones(2)), [0, 1]), (mixed, [2])):
        _, unexpected = typed(Table("a", ("day",), {0: cells}), 0, "date")
        assert unexpected.rows.tolist() == wrong


def seconds(*parts):
    return datetime(*parts, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2013-01-31", "2014-12-01"], [seconds(2013, 1, 31), seconds(2014, 12, 1)]),
        (["2013-01-31 05:06:07"], [seconds(2013, 1, 31, 5, 6, 7)]),
        (["2013-01-31T05:06:07Z"], [seconds(2013, 1, 31, 5, 6, 7)]),
        (["1/12/2013", "1/31/2013"], [seconds(2013, 1, 12), seconds(2013, 1, 31)]),
        (["1/12/2013", "31/1/2013"], [seconds(2013, 12, 1), seconds(2013, 1, 31)]),
        (["2013/01/31 05:06"], [seconds(2013, 1, 31, 5, 6)]),
        (["31-Jan-2013"], [seconds(2013, 1, 31)]),
        (["2017-08", "2017-12"], [seconds(2017, 8, 1), seconds(2017, 12, 1)]),
        (["08/2017"], [seconds(2017, 8, 1)]),
        (["Aug 2017"], [seconds(2017, 8, 1)]),
        (["August 2017", "May 2018"], [seconds(2017, 8, 1), seconds(2018, 5, 1)]),
        (["Aug-17"], [seconds(2017, 8, 1)]),
    ],
)
def test_dates_in_usual_forms(values, expected):
    form = format_of(values, np.ones(len(values), np.int64), 1)
    assert seconds_in(values, form).tolist() == expected


@pytest.mark.parametrize(
    "values", [[], ["now"], ["NaT"], ["2013-13-01"], ["2013-01-01", "red"], ["12/31"], ["1.2.3.4"]]
)
def test_other_text_is_no_date(values):
    assert format_of(values, np.ones(len(values), np.int64), 1) is None


def test_every_column_has_a_summary():
    columns = {
        0: NumberColumn(np.array([1.0, np.nan, 3.0])),
        1: NumberColumn(np.array([2.0, 2.0, 2.0])),
        2: CategoryColumn(np.array([0, 1, -1], np.int32), ["u", "v"]),
        4: NumberColumn(np.array([0.0, np.nan, np.nan])),
    }
    table = Table("t.csv", ("a", "b", "c", "d", "y"), columns)
    assert inspect(table, TableOptions(drop=("d",)), (4,)).summaries == (
        ("a", "number", 1, ""),
        ("b", None, 0, "constant"),
        ("c", "category", 1, ""),
        ("d", None, None, "--drop"),
        ("y", "label", 2, ""),
    )


def test_the_format_with_most_dates_is_chosen_and_other_cells_are_reported():
    days = ["01/02/2020", *(f"{day}/03/2020" for day in range(10, 31)), "2020-13-01"]
    rows = np.ones(len(days), np.int64)
    assert format_of(days, rows, 0.95) == "%d/%m/%Y"
    assert format_of([*days, "31.12.2020"], np.ones(len(days) + 1, np.int64), 0.95) is None
    found, inspected = kinds(day=days)
    assert found == {"day": "date"}
    assert [each.rows.tolist() for each in inspected.unexpected] == [[len(days) - 1]]
    later = Table("a", ("day",), {0: CategoryColumn.of_cells(days[:1])}, forms={0: "%d/%m/%Y"})
    assert typed(later, 0, "date")[0].values.tolist() == [seconds(2020, 2, 1)]
