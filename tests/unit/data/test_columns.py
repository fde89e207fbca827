from pathlib import Path

import pytest

from hogbatch.data.columns import TableForm, find_features, map_columns, numbered
from hogbatch.data.raw import Columns, ReadOptions
from hogbatch.errors import DataError

KNOWN = Columns(("a", "b", "c"), "y", 3)


def found(names, known=KNOWN, label=None):
    """Feature columns, label column and notes of a table for a known model."""
    names = tuple(names.split(","))
    table = TableForm(Path("t.csv"), ",", len(names), names, 2, numbered(names))
    options = ReadOptions(label, features=len(known.names), columns=known)
    assigned = map_columns(table, options)
    return list(assigned.sources), assigned.label, assigned.notes


def test_names_decide_in_any_order():
    assert found("a,b,c,y") == ([0, 1, 2], 3, ())
    assert found("y,c,a,b") == ([2, 3, 1], 0, ())
    assert found("c,a,b") == ([1, 2, 0], None, ())
    assert found("y,c,a,b,z", label="z") == (
        *([2, 3, 1], 4),
        ("1 column is ignored because the training data lack it: 'y'",),
    )
    assert found("c,a,b,z", label="3")[:2] == ([1, 2, 0], 3)


def test_columns_that_are_too_many_are_named_first_ones_first():
    notes = found("a,b,c,y," + ",".join(f"x{n}" for n in range(9)))[2]
    assert notes == (
        "9 columns are ignored because the training data lack them: "
        "'x0', 'x1', 'x2', 'x3', 'x4' and 4 more",
    )


def test_a_missing_feature_is_named_though_the_width_is_right():
    with pytest.raises(DataError, match=r"^t\.csv:2: expected the 3 features .* no column 'b'$"):
        found("a,c,y")
    with pytest.raises(DataError, match=r"no column 'a', 'c'$"):
        found("A,b,C,y")
    with pytest.raises(DataError, match=r"no column 'b' in addition to the label column$"):
        found("a,b,c", label="b")
    wide = Columns(tuple(f"f{n}" for n in range(100_000)), "y", 0)
    with pytest.raises(DataError, match=r"got no column 'f0', .*'f4' and 99995 more$") as caught:
        found("a,b,c,y", wide)
    assert len(str(caught.value)) < 300


def test_a_name_of_two_columns_is_an_error_where_it_is_needed():
    with pytest.raises(DataError, match=r"t\.csv:2: columns 0 and 3 \(from 0\) are both named 'a'"):
        found("a,b,c,a,y")
    with pytest.raises(DataError, match=r"columns 1 and 4 .* 'y'; give the number of the label"):
        found("a,y,b,c,y")
    assert found("a,y,b,c,y", label="4")[:2] == ([0, 2, 3], 4)
    assert found("x,a,b,c,x,y")[:2] == ([1, 2, 3], 5)


def test_two_columns_of_one_name_in_the_training_data_keep_their_order():
    known = Columns(("a", "a", "y"), "y", 0)
    assert found("y,a,a,y", known)[:2] == ([1, 2, 3], 0)
    assert found("a,a,y", known)[:2] == ([0, 1, 2], None)
    with pytest.raises(DataError, match=r"columns 0 and 2 .* are both named 'a'"):
        found("a,y,a", known)
    with pytest.raises(DataError, match="the training data have two columns named 'a'"):
        found("a,y,b", known._replace(label="b"))


@pytest.mark.parametrize(
    ("names", "known", "why"),
    [
        ("0,1,2,3", KNOWN, "the header has only column numbers"),
        ("u,v,w,z", Columns(position=3), "the training data have no column names"),
    ],
)
def test_without_names_on_both_sides_position_decides(names, known, why):
    table = TableForm(Path("t.csv"), ",", 4, tuple(names.split(",")), 1, numbered(names.split(",")))
    assigned = map_columns(table, ReadOptions(features=3, columns=known))
    assert (assigned.sources, assigned.label) == ([0, 1, 2], 3)
    assert assigned.notes == (
        f"{why}, so columns are matched to those of the training data by position",
    )


def test_a_table_without_names_has_its_label_where_the_training_data_had_it():
    table = TableForm(Path("t.csv"), ",", 4, (), 1)
    known = KNOWN._replace(position=0)
    assert map_columns(table, ReadOptions(features=3, columns=known)).label == 0
    assert (
        map_columns(table._replace(width=3), ReadOptions(features=3, columns=known)).label is None
    )
    assert map_columns(table, ReadOptions("1", features=3, columns=known)).label == 1
    with pytest.raises(DataError, match="no label column 'y': its 4 columns have no names"):
        map_columns(table, ReadOptions("y", features=3, columns=known))


def test_a_wide_table_is_matched_in_no_time():
    names = [f"f{n}" for n in range(100_000)]
    assert find_features(names[::-1], names, "t")[:2] == [99_999, 99_998]
