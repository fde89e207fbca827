"""Detection of header lines by the types of the columns.

A column with text in the first line and numbers below has a name. Words for missing values are
ignored, and numbers are a header only if they are the column numbers.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from hogbatch.data.columns import numbered
from hogbatch.machine.printable import quoted

SETTINGS: Final = ("auto", "yes", "no")
MISSING: Final = frozenset(
    (
        "",
        "-",
        ".",
        "?",
        "na",
        "n/a",
        "#n/a",
        "<na>",
        "nan",
        "-nan",
        "nil",
        "none",
        "null",
        "missing",
    )
)


class HeaderDecision(NamedTuple):
    """Whether the first line is a header."""

    header: bool
    numbered: bool = False  # a header of column numbers
    note: str | None = None  # for the user if the decision is not obvious


def decide(
    first: Sequence[str],
    following: Sequence[Sequence[str]],
    setting: str,
    expected: Collection[str],
) -> HeaderDecision:
    """Decide whether `first` is a header.

    `following` are the cells of some rows below, `setting` is one of SETTINGS, and `expected` are
    the names that a header would have (empty if unknown).
    """
    if setting != "auto":
        header = setting == "yes"
        return HeaderDecision(header, header and numbered(first))
    if numbered(first) and following:
        what = f"0 to {first[-1]}"
        return HeaderDecision(
            True,
            True,
            f"the first line is treated as a header of column numbers ({what}); if it is a row of "
            "data, use --header no",
        )
    texts = [column for column, cell in enumerate(first) if _is_text(cell)]
    if expected and set(expected) <= set(first) and (texts or _distinct(first)):
        return HeaderDecision(True)
    return _by_types(first, following, texts)


def _by_types(
    first: Sequence[str], following: Sequence[Sequence[str]], texts: Sequence[int]
) -> HeaderDecision:
    """Compare the columns with text in the first line with the same columns below."""
    rows = [row for row in following if len(row) == len(first)]
    numbers = sum(map(_is_number, first))
    words = 0
    for column in texts:
        below = [row[column] for row in rows]
        text = sum(map(_is_text, below))
        if sum(map(_is_number, below)) > text:
            note = (
                f"the first line is treated as a header because column {column} has "
                f"{quoted(first[column])} there and numbers below, although other columns have "
                "numbers in both; if it is a row of data, use --header no"
            )
            return HeaderDecision(True, note=note if numbers else None)
        words += text
    return HeaderDecision(bool(texts) and not words and not numbers)


def _distinct(first: Sequence[str]) -> bool:
    """Whether numbers can be names: at least three, all different."""
    return len(first) >= 3 and len(set(first)) == len(first)


def _is_missing(cell: str) -> bool:
    return cell.lower() in MISSING


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, including invalid numbers such as inf."""
    if _is_missing(cell):
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_text(cell: str) -> bool:
    return not _is_missing(cell) and not _is_number(cell)
