import pytest

from hogbatch.data.header import HeaderDecision, decide


def header(first, following, setting="auto", expected=()):
    """The decision for lines with blanks between cells."""
    return decide(first.split(), [line.split() for line in following], setting, expected)


@pytest.mark.parametrize(
    ("first", "following", "expected"),
    [
        ("a b y", ["1 2 0", "3 4 1"], True),
        ("1 2 3", ["1 2 0", "3 4 1"], False),
        ("a b y", [], True),  # a file with a header alone
        ("a 2 y", [], False),
        ("a b y", ["NA ? 1"], True),
        ("1 NA 3", ["1 2 0"], False),
        ("inf 2 3", ["1 2 0"], False),
        ("a b y", ["1 2", "1 2 3 4"], True),  # nothing to compare with
        ("a b y", ["1 x 0", "2 z 1"], True),
        ("1 x 0", ["1 x 0", "2 z 1"], False),
        ("1 x 0", ["1 NA 0", "2 NA 1"], False),
        ("a x y", ["b x z", "c z x"], False),
        ("a b", ["x 1", "1 1", "2 2"], True),  # most rows have numbers
    ],
)
def test_a_header_is_told_by_the_types_of_the_columns(first, following, expected):
    assert header(first, following) == HeaderDecision(expected)


def test_a_setting_decides_whatever_the_cells_are():
    for first in ("a b y", "1 2 3", "NA x 1"):
        for setting in ("yes", "no"):
            assert header(first, ["1 2 0"], setting) == HeaderDecision(setting == "yes")
    assert header("0 1 2", ["1 2 0"], "yes") == HeaderDecision(True, numbered=True)


@pytest.mark.parametrize(
    ("first", "following", "expected"),
    [
        ("0 1 2 3", ["5 6 7 8"], True),
        ("0 1 2", [], False),
        ("0 1", ["5 6"], False),
        ("1 2 3", ["5 6 7"], False),
        ("0 2 1", ["5 6 7"], False),
    ],
)
def test_column_numbers_are_a_header(first, following, expected):
    decision = header(first, following)
    assert decision.header == decision.numbered == expected
    assert ("(0 to " in (decision.note or "")) == expected


def test_numbers_beside_names_are_said():
    decision = header("1x 2 3", ["1 2 0"])
    assert decision.header and "column 0 has '1x'" in decision.note


def test_expected_names_make_a_header():
    assert header("3 0 2 1", ["1 2 0 4"], expected=("0", "1", "2")).header
    assert header("a b", ["x y"], expected=("b",)).header
    assert not header("3 0 2 1", ["1 2 0 4"], expected=("0", "7")).header
    assert not header("1 1 0", ["1 0 1"], expected=("0", "1")).header  # a row, most likely
