import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest

from hogbatch.data.load import load, prepare
from hogbatch.data.order import Fractions
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.table.columns import CategoryColumn
from hogbatch.data.table.given import encode, training_set
from hogbatch.data.table.kinds import TableOptions
from hogbatch.data.table.written import number_in, reading_of
from hogbatch.errors import DataError
from tests.support.reading import read_for_model

TABLE = ReadOptions(table=TableOptions())


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        ("1234.5", 1234.5, None),
        ("-1e3", -1000, -1000),
        ("1.234", 1.234, 1234),
        ("43,863", 43863, 43.863),
        ("0,863", None, 0.863),
        ("1,234,567.5", 1234567.5, None),
        ("1.234.567,5", None, 1234567.5),
        ("1 234 567", 1234567, 1234567),
        ("1'234.50", 1234.5, None),
        ("1\u202f234,5", None, 1234.5),
        ("$438.63", 438.63, None),
        ("-$1,234", -1234, -1.234),
        ("$-5", -5, -5),
        ("($1,234.50)", -1234.5, None),
        ("12.5%", 12.5, None),
        ("12,5 %", None, 12.5),
        ("1.234,50 €", None, 1234.5),
        ("CHF 5", 5, 5),
        ("\u22125", -5, -5),
        *((text, None, None) for text in ("", "$", "1,23,4", "12,34.5", "1-2", "1_0", "٣", "5 m")),
        *(
            (text, None, None)
            for text in ("(5", "inf", "1.2.3.4", "12:30", "1,2,3", "%", ",", "a1")
        ),
    ],
)
def test_numbers_in_cells(text, point, comma):
    found = (number_in(text, mark) for mark in ".,")
    assert [each and each.value for each in found] == [point, comma]


@pytest.mark.parametrize(
    ("cells", "decimal", "numbers"),
    [
        (["1.234", "0.5"], ".", [1.234, 0.5]),
        (["1.234", "0,5"], ",", [1234, 0.5]),
        (["1.234", "1.234.567"], ",", [1234, 1234567]),
        (["12", "5 000"], "", [12, 5000]),
        (["1.5", "0,5"], None, None),
        (["red", "5"], None, None),
    ],
)
def test_a_column_is_read_in_the_way_that_fits_all_its_cells(cells, decimal, numbers):
    found = reading_of(CategoryColumn.of_cells(cells))
    assert (found and found.decimal) == decimal and not (found and found.doubtful)
    assert (found and [number.value for number in found.numbers]) == numbers


def table(delimiter, *columns):
    """The text of a table with these columns, and a label."""
    names = [*"abcdef"[: len(columns)], "y"]
    rows = [names, *zip(*columns, [n % 2 for n in range(len(columns[0]))], strict=True)]
    return "".join(delimiter.join(map(str, row)) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("delimiter", "columns", "expected"),
    [
        (",", [["1.234", "2.345", "3.456"]], [[1.234, 2.345, 3.456]]),
        (",", [['"43,863"', "512", '"1,000"']], [[43863, 512, 1000]]),
        (",", [['"43,863"', '"1,000"', "7"], [0.5, 1, 2]], [[43863, 1000, 7], [0.5, 1, 2]]),
        (",", [["$438.63", '"$1,234.50"', "$5"]], [[438.63, 1234.5, 5]]),
        ("\t", [["12.5%", "-3%", "0%"]], [[12.5, -3, 0]]),
        (";", [["1.234", "2.345", "3.456"]], [[1.234, 2.345, 3.456]]),
        (";", [["1,234", "2,345", "3,456"]], [[1.234, 2.345, 3.456]]),
        (";", [["1.234,5", "2,5", "12"], ["0,5", "1,5", "2"]], [[1234.5, 2.5, 12], [0.5, 1.5, 2]]),
        (
            ";",
            [["1.234.567", "2.345", "1"], ["0,5", "1,5", "2"]],
            [[1234567, 2345, 1], [0.5, 1.5, 2]],
        ),
        (";", [["1.5", "2.5", "3.5"], ["0,5", "1,5", "2,5"]], [[1.5, 2.5, 3.5], [0.5, 1.5, 2.5]]),
    ],
)
def test_columns_of_numbers_as_people_write_them(write, delimiter, columns, expected):
    raw = read_as(write("a.csv", table(delimiter, *columns)), TABLE)
    assert set(raw.table.kinds.values()) == {"number"}
    assert [raw.table.table.columns[n].values.tolist() for n in raw.table.kinds] == expected


def test_the_note_says_how_cells_were_read(write):
    columns = [["$438.63", '"$1,234.50"', "$5"], [1, 2, 3.5]]
    (note,) = read_as(write("a.csv", table(",", *columns)), TABLE).notes
    assert note == "columns: 2 numeric columns (a: '$438.63' is 438.63, b)"
    raw = read_as(write("b.csv", "a,y\n" + '1,$5.25\n2,"$1,234.50"\n3,$7.75\n'), TABLE)
    assert raw.labels.tolist() == [5.25, 1234.5, 7.75]
    assert raw.notes[-1] == "column 'y': '$5.25' is 5.25"


@pytest.mark.parametrize(
    ("delimiter", "columns"),
    [
        (";", [["1.234", "2.345", "3"], ["0,5", "1,5", "2,5"]]),
        (";", [["0,5", "1,5", "2,5"], ["1.234", "2.345", "3.456"]]),
        (";", [["1,234", "2,345", "3"], ["0.5", "1.5", "2.5"]]),
        (",", [['"1,234"', '"2,345"', "3"], ['"0,5"', '"1,5"', '"2,5"']]),
    ],
)
def test_a_column_with_two_readings_needs_the_flag_if_the_table_has_both_marks(
    write, delimiter, columns
):
    path = write("a.csv", table(delimiter, *columns))
    with pytest.raises(DataError, match=r"'1.234' is .* choose with --decimal \. or --decimal ,"):
        read_as(path, TABLE)
    for mark in ".,":
        raw = read_as(path, ReadOptions(table=TableOptions(decimal=mark)))
        firsts = {raw.table.table.columns[n].values[0] for n in (0, 1)}
        large = (mark == ",") == ("1.234" in columns[0] + columns[1])
        assert firsts == {0.5, 1234 if large else 1.234}


@pytest.mark.parametrize("cells", [["$5", "€6", "$7"] * 9, ["5%", "6", "7%"] * 9])
def test_numbers_in_different_units_are_categories(write, cells):
    raw = read_as(write("a.csv", table(",", cells)), TABLE)
    assert raw.table.kinds == {0: "category"}


def test_later_rows_are_read_like_the_training_rows(write):
    chance = np.random.default_rng(0)
    cents = chance.integers(0, 10**7, 40)
    written = [f"{n // 100:,}.{n % 100:02}".translate({44: ".", 46: ","}) for n in cents]
    days = [f"{d}/03/2020" for d in range(1, 21)] * 2
    loaded = load(write("a.csv", table(";", written, days)), options=TABLE, fractions=Fractions(0))
    rows = {
        "b.csv": table(";", ["1.234"], ["02/03/2020"]),  # one row shows neither mark nor order
        "c.csv": table(",", ["1.234"], ["02/03/2020"]),
        "d.csv": table(",", ["1234.0"], ["2020-03-02"]),
        "e.csv": table(",", ["$1234.00"], ["2020-03-02"]),
    }
    values = [
        read_for_model(
            write(name, text), loaded.train.features, encoding=loaded.table
        ).inputs.dense.tolist()
        for name, text in rows.items()
    ]
    frame = pd.DataFrame({"a": ["1.234"], "b": ["02/03/2020"]})
    for given in (frame, polars.from_pandas(frame), pyarrow.Table.from_pandas(frame)):
        values.append(encode(given, loaded.table, "X").dense.tolist())
    assert len(values) == 7 and all(each == values[0] for each in values)
    assert (1234 - cents.mean() / 100) / (cents.std() / 100) == pytest.approx(values[0][0][0])


LARGE = [2**53 - 1, 2**53, 2**53 + 1] * 8


@pytest.mark.parametrize("save", ["to_csv", "to_parquet", "to_feather", "frame", "text"])
def test_whole_numbers_that_float64_cannot_hold_are_text(tmp_path, save):
    frame = pd.DataFrame({"a": LARGE, "b": range(5, 29), "y": LARGE})
    if save in ("frame", "text"):
        given = frame.astype({"a": str}) if save == "text" else frame
        raw = training_set(given[["a", "b"]], given["y"], None, TableOptions())
    else:
        path = tmp_path / "a"
        getattr(frame, save)(path, **({"index": False} if save == "to_csv" else {}))
        raw = read_as(path, TABLE)
    assert raw.table.kinds == {0: "category", 1: "number"}
    assert prepare(raw).encoding.classes == tuple(map(str, LARGE[:3]))


def test_whole_numbers_beyond_the_integers_of_a_machine_are_text(write):
    path = write("a.csv", table(",", ["123456789012345678901", "123456789012345678902"] * 9))
    raw = read_as(path, TABLE)
    assert raw.table.kinds == {0: "category"} and len(raw.table.table.columns[0].values) == 2
    raw = read_as(write("b.csv", table(",", ["1e20", "2.5e20"] * 9)), TABLE)
    assert raw.table.kinds == {0: "number"}
