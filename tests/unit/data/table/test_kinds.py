import numpy as np
import pytest

from hogbatch.data.table.columns import CategoryColumn, DateColumn, NumberColumn, Table, TextColumn
from hogbatch.data.table.kinds import TableOptions, inspect
from hogbatch.errors import DataError


def table(**columns):
    """A table of lists of cells; the label column is added."""
    rows = len(next(iter(columns.values())))
    found = {**columns, "label": [0.0, 1.0] * (rows // 2) + [0.0] * (rows % 2)}
    converted = {
        n: CategoryColumn.of_cells(cells)
        if any(isinstance(cell, str) for cell in cells)
        else NumberColumn(np.array(cells, np.float64))
        for n, cells in enumerate(found.values())
    }
    return Table("t", tuple(found), converted)


def kinds(options=TableOptions(), **columns):  # noqa: B008 (frozen)
    given = table(**columns)
    inspected = inspect(given, options, len(given.names) - 1)
    return {given.names[n]: kind for n, kind in inspected.kinds.items()}, inspected


def test_kinds_follow_from_the_cells():
    assert kinds(
        a=[1, 2.5, float("nan")],
        b=["x", "y", "x"],
        c=["1", " 2 ", "NA"],
        d=["2013-01-01", "2013-02-01", "?"],
    )[0] == {"a": "number", "b": "category", "c": "number", "d": "date"}


def test_words_for_missing_values_are_missing_numbers():
    inspected = kinds(a=["1", "n/a", "-", "null", "NaN", " 5"])[1]
    np.testing.assert_array_equal(
        inspected.table.columns[0].values, [1, np.nan, np.nan, np.nan, np.nan, 5]
    )


def test_constant_columns_empty_columns_and_columns_that_identify_rows_are_not_used():
    rows = 30
    found, inspected = kinds(
        id=list(range(5, 5 + rows)),
        name=[f"no. {n}" for n in range(rows)],
        empty=[float("nan")] * rows,
        same=["x"] * rows,
        one=[1] * rows,
        year=list(range(1990, 1990 + rows)),
        gaps=["x", "NA"] * (rows // 2),
    )
    assert found == {"year": "number", "gaps": "category"}
    assert inspected.note == (
        "columns: 1 numeric column (year), 1 categorical column (gaps); not used: id (numbers the "
        "rows; --numeric uses it), name (text that differs in nearly every row; --text or "
        "--categorical uses it), empty (no values), same (constant), one (constant)"
    )


def test_flags_choose_the_kind():
    rows = 30
    options = TableOptions(drop=("x",), categorical=("month",), numeric=("id",), text=("name",))
    found, inspected = kinds(
        options,
        id=list(range(rows)),
        name=[f"no. {n}" for n in range(rows)],
        month=[1, 2, 3] * 10,
        x=[1, 2] * 15,
    )
    assert found == {"id": "number", "name": "text", "month": "category"}
    assert isinstance(inspected.table.columns[1], TextColumn)
    assert inspected.table.columns[2].values == ["1", "2", "3"]
    assert inspected.note.endswith("; not used: x (--drop)")


def test_a_column_goes_by_its_number_where_no_name_is_equal():
    assert kinds(TableOptions(drop=("0",)), a=[1, 2], b=[1, 2])[0] == {"b": "number"}


def test_few_words_among_numbers_are_unexpected():
    _, inspected = kinds(a=[*(str(n) for n in range(39)), "many"])
    (cells,) = inspected.unexpected
    assert (cells.rows.tolist(), cells.position, cells.word) == ([39], 0, True)
    assert cells.complaint == "column 'a': expected a number; got 'many'"


def test_many_words_among_numbers_are_categories():
    found, inspected = kinds(a=[*(str(n % 9) for n in range(36)), "J", "Q", "K", "A"])
    assert found == {"a": "category"}
    assert inspected.unexpected == ()


def test_infinite_numbers_are_unexpected():
    _, inspected = kinds(a=[1, np.inf, 2])
    assert inspected.unexpected[0].rows.tolist() == [1]


def test_dates_may_be_numbers():
    found = Table(
        "t", ("a", "y"), {0: DateColumn(np.array([0.0, 86400])), 1: NumberColumn(np.arange(2.0))}
    )
    assert inspect(found, TableOptions(), 1).kinds == {0: "date"}
    inspected = inspect(found, TableOptions(numeric=("a",)), 1)
    assert inspected.table.columns[0].values.tolist() == [0, 86400]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (TableOptions(drop=("z",)), "t has no column 'z': its columns are a, label"),
        (TableOptions(text=("label",)), "column 'label' is the label column"),
        (TableOptions(text=("a",), drop=("a",)), "column 'a' is named in two of --drop"),
    ],
)
def test_flags_that_do_not_fit_the_table(options, complaint):
    with pytest.raises(DataError, match=complaint):
        kinds(options, a=[1, 2])


def test_a_name_of_two_columns_is_ambiguous():
    two = Table("t", ("a", "a", "y"), {n: NumberColumn(np.arange(2.0)) for n in range(3)})
    with pytest.raises(DataError, match=r"columns 0 and 1 .* are both named 'a'"):
        inspect(two, TableOptions(drop=("a",)), 2)
    assert inspect(two, TableOptions(drop=("0",)), 2).kinds == {1: "number"}
