import pytest

from hogbatch.data.facts import Fitted
from hogbatch.data.load import load
from hogbatch.data.order import Fractions
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import DataError, UsageError

ROWS = "x,who,when,y\n1,b,2/3/2020,u\n5,a,1/30/2020,v\n2,b,2/1/2020,\n4,c,2/2/2020,u\n"


@pytest.mark.parametrize(
    ("use", "drop", "features", "numbers"),
    [
        ({"group": "who"}, (), [0, 2], [1, 0, 2]),
        ({"time": "when"}, (), [0, 1, 2], [3, 0, 2]),
        ({"time": "when"}, ("when",), [0, 1], [3, 0, 2]),
    ],
)
def test_groups_are_no_features_and_times_may_be(write, use, drop, features, numbers):
    options = ReadOptions(table=TableOptions(drop=drop), **use)
    raw = read_as(write("a.csv", ROWS), options)
    assert ([*raw.table.kinds], raw.groups.numbers.tolist()) == (features, numbers)


def test_rows_for_a_model_are_split_too_and_files_of_one_set_need_no_times(write):
    rows = (f"{n % 7},{n * 37 % 100},{n % 2}\n" for n in range(100))
    data, test = write("a.csv", f"x,t,y\n{''.join(rows)}"), write("b.csv", "x,y\n1,1\n2,0\n")
    options = ReadOptions(time="t", table=TableOptions(drop=("t",)))
    settings = {"options": options, "files": {"test": test}, "fractions": Fractions(0, 0.25)}
    first = load(data, **settings)
    fitted = Fitted(first.encoding, None, first.table, first.columns, None, first.train.features)
    assert load(data, scale=fitted, **settings).fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("fractions", "note"),
    [
        (Fractions(0.3), "cannot learn these classes: late"),
        (Fractions(0, 0), "does not split the rows: "),
        (Fractions(0.1), None),
    ],
)
def test_what_a_split_by_times_lacks_is_noted(write, fractions, note):
    rows = (f"{n % 7},{n},{'late' if n >= 8 else 'ab'[n % 2]}\n" for n in range(10))
    path = write("a.csv", f"x,t,y\n{''.join(rows)}")
    loaded = load(path, options=ReadOptions(time="t", table=TableOptions()), fractions=fractions)
    said = [each for each in loaded.notes if "column 't'" in each]
    assert len(said) == bool(note) and all(note in each for each in said)


@pytest.mark.parametrize(
    ("use", "cell", "message"),
    [
        ("group", "", r"g\.csv:3: column 'g': expected a group in each row; got a missing value"),
        ("time", "", r"g\.csv:3: column 'g': expected a time in each row; got a missing value"),
        ("time", "b", r"g\.csv:2: column 'g': expected a time .* a number or date; got 'a'"),
    ],
)
def test_groups_and_times_that_cannot_be_used_are_refused(write, use, cell, message):
    path = write("g.csv", f"x,g,y\n1,{'a' if cell else 1},0\n2,{cell},1\n")
    with pytest.raises(DataError, match=message):
        read_as(path, ReadOptions(table=TableOptions(), **{use: "g"}))


def test_only_the_rows_of_tables_are_split_by_a_column_and_by_one(write):
    with pytest.raises(UsageError, match=r"--group and --time .* expected one of them"):
        read_as(write("a.csv", ROWS), ReadOptions(group="who", time="when", table=TableOptions()))
    with pytest.raises(DataError, match="--group and --time name a column of a table"):
        read_as(write("a.svm", "1 1:2\n0 1:3\n"), ReadOptions(group="who"))
