import pytest

from hogbatch.data.table.dialect import Header, decide_header


def header(first, below, setting="auto", expected=()):
    """The decision for lines with blanks between cells."""
    return decide_header(first.split(), [line.split() for line in below], setting, expected)


@pytest.mark.parametrize(
    ("first", "below", "expected"),
    [
        ("a b y", ["1 2 0", "3 4 1"], True),
        ("1 2 3", ["1 2 0", "3 4 1"], False),
        ("a b y", [], True),  # a file with a header alone
        ("a 2 y", [], False),
        ("a b y", ["NA ? 1"], True),
        ("1 NA 3", ["1 2 0"], False),
        ("inf 2 3", ["1 2 0"], False),
        ("$4 1,234 50%", ["$5 2,345 60%"], False),
        ("price y", ["$4 1,234", "$4 5"], True),
        ("a b y", ["1 2", "1 2 3 4"], True),  # nothing to compare with
        ("a b y", ["1 x 0", "2 z 1"], True),
        ("1 x 0", ["1 x 0", "2 z 1"], False),
        ("1 x 0", ["1 NA 0", "2 NA 1"], False),
        ("a x y", ["b x z", "c z x"], False),
        ("a b", ["x 1", "1 1", "2 2"], True),  # most rows have numbers
    ],
)
def test_a_header_is_told_by_the_types_of_the_columns(first, below, expected):
    assert header(first, below) == Header(expected)


def test_a_setting_decides_whatever_the_cells_are():
    for first in ("a b y", "1 2 3", "NA x 1"):
        for setting in ("yes", "no"):
            assert header(first, ["1 2 0"], setting) == Header(setting == "yes")
    assert header("0 1 2", ["1 2 0"], "yes") == Header(True, numbered=True)


@pytest.mark.parametrize(
    ("first", "below", "expected"),
    [
        ("0 1 2 3", ["5 6 7 8"], True),
        ("0 1 2", [], False),
        ("0 1", ["5 6"], False),
        ("1 2 3", ["5 6 7"], False),
    ],
)
def test_column_numbers_are_a_header(first, below, expected):
    decision = header(first, below)
    assert decision.header == decision.numbered == expected
    assert ("(0 to " in (decision.note or "")) == expected


def test_decisions_that_are_not_obvious_are_said():
    decision = header("1x 2 3", ["1 2 0"])
    assert decision.header and "column 0 has '1x' there and numbers below" in decision.note
    assert header("a b", ["x y"]).note == (
        "the first line is treated as a header; if it is a row of data, use --header no"
    )
    assert header("a b", ["x y"], expected=("b",)) == Header(True)
