"""Properties that all files of divided data must have in common."""

from collections.abc import Sequence
from typing import Final

from hogbatch.cluster.divided.records import PartSurvey
from hogbatch.data.raw import Columns
from hogbatch.data.source import shown
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted

SAME: Final = "expected the same columns in the same order in all files"


def expect_same_form(surveys: Sequence[PartSurvey]) -> None:
    """DataError for the first file whose rows have another form than those of the first file."""
    first = surveys[0]
    for other in surveys[1:]:
        if difference := _difference(first, other):
            raise DataError(f"{shown(other.part.path)}: {difference}")


def _difference(first: PartSurvey, other: PartSurvey) -> str | None:
    """How `other` differs from `first`, and what to do; None if it does not."""
    file = shown(first.part.path)
    expected, found = first.part.train, other.part.train
    if expected.sparse != found.sparse:
        forms = {True: "sparse", False: "dense"}
        return (
            f"expected {forms[expected.sparse]} rows, as in {file}; got {forms[found.sparse]} "
            "rows; use one format for all files"
        )
    if first.index_base != other.index_base:
        return f"expected the format of {file}, in which features are counted in the same way"
    if (first.columns.names == ()) != (other.columns.names == ()):
        has, lacks = ("a header", "none") if other.columns.names else ("no header", "one")
        return f"{has}, but {file} has {lacks}; use the same in all files, or give --header"
    if not expected.sparse and expected.features != found.features:
        return f"expected {expected.features} features, as in {file}; got {found.features}"
    return _column_difference(first.columns, other.columns, file)


def _column_difference(expected: Columns, found: Columns, file: str) -> str | None:
    for place, (name, own) in enumerate(zip(expected.names, found.names, strict=True)):
        if name != own:
            return (
                f"feature {place} (from 0) is {quoted(own)}, but {quoted(name)} in {file}; {SAME}"
            )
    if expected != found:
        return f"the label is {_label(found)}, but {_label(expected)} in {file}; {SAME}"
    return None


def _label(columns: Columns) -> str:
    name = "" if columns.label is None else f" ({quoted(columns.label)})"
    return f"column {columns.position}{name}"
