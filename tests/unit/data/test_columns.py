import pytest

from hogbatch.data.columns import TableForm, number_columns, numbered
from hogbatch.data.raw import Columns, ReadOptions
from hogbatch.errors import DataError

KNOWN = Columns(("a", "b", "c"), "y", 3)
TWICE = Columns(("a", "a", "y"), "y", 0)
UNNAMED = Columns(position=3)


def matched(names, known=KNOWN, label=None, named=True):
    """Feature columns, label column and note of a table for a model of three features."""
    form = TableForm("t.csv", tuple(names.split(",")), named)
    return number_columns(
        form, ReadOptions(label.split(",") if label else (), features=3, columns=known)
    )


@pytest.mark.parametrize(
    ("names", "known", "label", "features", "label_column"),
    [
        ("a,b,c,y", KNOWN, None, [0, 1, 2], 3),
        ("y,c,a,b", KNOWN, None, [2, 3, 1], 0),
        ("c,a,b", KNOWN, None, [1, 2, 0], None),
        ("y,c,a,b,z", KNOWN, "z", [2, 3, 1], 4),
        ("c,a,b,z", KNOWN, "3", [1, 2, 0], 3),
        ("x,a,b,c,x,y", KNOWN, None, [1, 2, 3], 5),
        ("y,a,a,y", TWICE, None, [1, 2, 3], 0),  # the order of the training data
        ("a,a,y", TWICE, None, [0, 1, 2], None),
        ("a,b,c,y", KNOWN._replace(position=4), None, [0, 1, 2], 3),  # trained with an index
    ],
)
def test_names_decide_in_any_order(names, known, label, features, label_column):
    assert matched(names, known, label) == (features, label_column, None)


WIDE = Columns(tuple(f"f{n}" for n in range(100_000)), "y", 0)


@pytest.mark.parametrize(
    ("names", "known", "label", "complaint"),
    [
        ("a,c,y", KNOWN, None, r"^t\.csv: expected the 3 features .* no column 'b'$"),
        ("A,b,C,y", KNOWN, None, r"no column 'a', 'c'$"),
        ("a,b,c", KNOWN, "b", r"no column 'b' in addition to the label column$"),
        ("a,b,c,y", WIDE, None, r"got no column 'f0', .*'f4' and 99995 more$"),
        ("a,b,c,a,y", KNOWN, None, r"t\.csv: columns 0 and 3 \(from 0\) are both named 'a'"),
        ("a,y,b,c,y", KNOWN, None, r"columns 1 and 4 .* 'y'; rename one, or give the number"),
        ("a,y,a", TWICE, None, r"columns 0 and 2 .* are both named 'a'"),
        ("a,y,b", TWICE, "b", "the training data have two columns named 'a'"),
        ("a", UNNAMED, None, "expected features and a label; got one column"),
        ("a,b,c,y", UNNAMED, "c,y", r"t\.csv: expected one label column, because .*; got 2$"),
        ("a,b,c,y", UNNAMED, "y,3", r"t\.csv: column 'y' is given twice as a label column"),
        ("a,b,c,y", UNNAMED, "z", r"t\.csv has no label column 'z': its columns are a, b, c, y$"),
    ],
)
def test_features_that_are_missing_or_ambiguous_are_named(names, known, label, complaint):
    with pytest.raises(DataError, match=complaint):
        matched(names, known, label)


@pytest.mark.parametrize(
    ("names", "known", "named", "why"),
    [
        ("0,1,2,3", KNOWN, False, "there is no header"),
        ("u,v,w,z", UNNAMED, True, "the training data have no column names"),
    ],
)
def test_without_names_on_both_sides_position_decides(names, known, named, why):
    note = f"{why}, so columns are matched to those of the training data by position"
    assert matched(names, known, named=named) == ([0, 1, 2], 3, note)


def test_a_table_without_names_has_its_label_where_the_training_data_had_it():
    known = Columns(position=0)
    for names, given, label in (("0,1,2,3", None, 0), ("0,1,2", None, None), ("0,1,2,3", "1", 1)):
        assert matched(names, known, given, named=False)[1:] == (label, None)


def test_the_index_of_a_data_frame_is_not_a_feature():
    for name in ("Unnamed: 0", "__index_level_0__"):
        form = TableForm("t.csv", (name, "a", "y"), True)
        found = number_columns(form, ReadOptions())
        assert (found.features, found.label) == ([1], 2) and "index of a data frame" in found.note
        assert number_columns(form, ReadOptions(("0",)))[:2] == ([1, 2], 0)


def test_column_numbers_are_no_names():
    for names in ("0,1,2", ",0,1"):
        assert numbered(names.split(","))
    for names in ("0,1", "1,2,3", "0,2,1", "a,1,2"):
        assert not numbered(names.split(","))
