from pathlib import Path

import pytest

from hogbatch.data.columns import TableForm, map_columns, numbered
from hogbatch.data.raw import Columns, ReadOptions
from hogbatch.errors import DataError

KNOWN = Columns(("a", "b", "c"), "y", 3)
TWICE = Columns(("a", "a", "y"), "y", 0)
UNNAMED = TableForm(Path("t.csv"), ",", 4, (), 1)


def mapped(names, known=KNOWN, label=None):
    """Feature columns, label column and notes of a table for a model of three features."""
    names = tuple(names.split(","))
    table = TableForm(Path("t.csv"), ",", len(names), names, 2, numbered(names))
    found = map_columns(table, ReadOptions(label, features=3, columns=known))
    return list(found.sources), found.label, found.notes


@pytest.mark.parametrize(
    ("names", "known", "label", "features", "label_column"),
    [
        ("a,b,c,y", KNOWN, None, [0, 1, 2], 3),
        ("y,c,a,b", KNOWN, None, [2, 3, 1], 0),
        ("c,a,b", KNOWN, None, [1, 2, 0], None),
        ("y,c,a,b,z", KNOWN, "z", [2, 3, 1], 4),
        ("c,a,b,z", KNOWN, "3", [1, 2, 0], 3),
        ("a,y,b,c,y", KNOWN, "4", [0, 2, 3], 4),
        ("x,a,b,c,x,y", KNOWN, None, [1, 2, 3], 5),
        ("y,a,a,y", TWICE, None, [1, 2, 3], 0),  # the order of the training data
        ("a,a,y", TWICE, None, [0, 1, 2], None),
    ],
)
def test_names_decide_in_any_order(names, known, label, features, label_column):
    assert mapped(names, known, label)[:2] == (features, label_column)


def test_columns_that_are_too_many_are_named_first_ones_first():
    unknown = ",".join(f"x{n}" for n in range(9))
    assert mapped("a,b,c,y," + unknown)[2] == (
        "9 columns are ignored because the training data lack them: "
        "'x0', 'x1', 'x2', 'x3', 'x4' and 4 more",
    )
    assert mapped("a,b,c,y,z")[2][0].startswith("1 column is ignored because the training data la")


WIDE = Columns(tuple(f"f{n}" for n in range(100_000)), "y", 0)


@pytest.mark.parametrize(
    ("names", "known", "label", "complaint"),
    [
        ("a,c,y", KNOWN, None, r"^t\.csv:2: expected the 3 features .* no column 'b'$"),
        ("A,b,C,y", KNOWN, None, r"no column 'a', 'c'$"),
        ("a,b,c", KNOWN, "b", r"no column 'b' in addition to the label column$"),
        ("a,b,c,y", WIDE, None, r"got no column 'f0', .*'f4' and 99995 more$"),
        ("a,b,c,a,y", KNOWN, None, r"t\.csv:2: columns 0 and 3 \(from 0\) are both named 'a'"),
        ("a,y,b,c,y", KNOWN, None, r"columns 1 and 4 .* 'y'; give the number of the label"),
        ("a,y,a", TWICE, None, r"columns 0 and 2 .* are both named 'a'"),
        ("a,y,b", TWICE, "b", "the training data have two columns named 'a'"),
    ],
)
def test_features_that_are_missing_or_ambiguous_are_named(names, known, label, complaint):
    with pytest.raises(DataError, match=complaint):
        mapped(names, known, label)


@pytest.mark.parametrize(
    ("names", "known", "why"),
    [
        ("0,1,2,3", KNOWN, "the header has only column numbers"),
        ("u,v,w,z", Columns(position=3), "the training data have no column names"),
    ],
)
def test_without_names_on_both_sides_position_decides(names, known, why):
    note = f"{why}, so columns are matched to those of the training data by position"
    assert mapped(names, known) == ([0, 1, 2], 3, (note,))


def test_a_table_without_names_has_its_label_where_the_training_data_had_it():
    known = KNOWN._replace(position=0)
    for width, given, label in ((4, None, 0), (3, None, None), (4, "1", 1)):
        table = UNNAMED._replace(width=width)
        assert map_columns(table, ReadOptions(given, features=3, columns=known)).label == label
    with pytest.raises(DataError, match="no label column 'y': its 4 columns have no names"):
        map_columns(UNNAMED, ReadOptions("y", features=3, columns=known))
