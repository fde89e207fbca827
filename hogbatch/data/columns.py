"""Matching of table columns to features: by name if both tables have names, else by position.

Names are compared as written in the header, without surrounding blanks. A header of column numbers
contains no names.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from hogbatch.data.raw import NO_COLUMNS, Columns, ReadOptions
from hogbatch.errors import DataError
from hogbatch.machine.printable import printable, quoted

# The index of a data frame, whose rows may be in any order: to_csv writes no name for it.
FRAME_INDEX: Final = re.compile(r"Unnamed: \d+(?:\.\d+)?|__index_level_\d+__|__null_dask_index__")
MAX_SHOWN_COLUMNS: Final = 20


class TableForm(NamedTuple):
    """The names of the columns of a table."""

    source: str  # in messages
    names: tuple[str, ...]  # [D]; numbers from 0 without a header
    named: bool  # whether the names are from the file
    indexes: frozenset[str] = frozenset()  # names of columns that hold the index of a data frame

    @property
    def frame_index(self) -> frozenset[int]:
        """The positions of the columns that hold the index of a data frame."""
        return frozenset(
            n
            for n, name in enumerate(self.names)
            if self.named and (name in self.indexes or FRAME_INDEX.fullmatch(name))
        )

    @property
    def last(self) -> int:
        """The last column that is not the index of a data frame: by default, the label."""
        return max(set(range(len(self.names))) - self.frame_index, default=-1)


class NumberColumns(NamedTuple):
    """The columns of a table that are read as a matrix of numbers."""

    features: list[int]  # [F]: the column of each feature
    label: int | None  # the label column
    note: str | None

    def names(self, form: TableForm) -> Columns:
        """Column names and label position, for matching the columns of later tables."""
        if not form.named:
            return Columns(position=self.label)
        label = None if self.label is None else form.names[self.label]
        return Columns(tuple(form.names[n] for n in self.features), label, self.label)


def number_columns(form: TableForm, options: ReadOptions) -> NumberColumns:
    """The columns of a table of numbers: for training, or for the model described by `options`.

    The index of a data frame is not a feature: the number of a row may reveal its label. If columns
    are matched by position, a table with as many columns as the model has features has no labels.
    DataError if the label column or a feature is missing, or a required name is not unique.
    """
    known, width, indexes = options.columns or NO_COLUMNS, len(form.names), form.frame_index
    if known.names and form.named:
        label = label_of_known(form, options.label, known)
        features = find_features(form.names, known.names, form.source, label)
        return NumberColumns(features, label, None)
    if options.label:
        label = find_label(form, options.label)
    elif options.features == width - len(indexes):
        label = None
    else:
        label = form.last if known.position is None else min(known.position, form.last)
    features = [n for n in range(width) if n != label and n not in indexes]
    if label is not None and not features:
        raise one_column(form.source)
    note = position_note(bool(known.names), form.named) if options.features is not None else None
    if indexes and options.features is None:
        some = ", ".join(map(str, sorted(indexes)))
        note = f"column {some} is the index of a data frame and is left out"
    return NumberColumns(features, label, note)


def label_of_known(form: TableForm, label: Sequence[str], known: Columns) -> int | None:
    """The label column of a table with names, or None; a feature may have the same name."""
    if label:
        return find_label(form, label)
    if known.label is None or known.position is None or form.names == known.names:
        return None
    before, after = known.names[: known.position], known.names[known.position :]
    if form.names == (*before, known.label, *after):
        return len(before)  # the position, unless only the training data have an index
    return find(form, known.label, "label") if known.label in form.names else None


def position_note(known: bool, named: bool) -> str | None:
    """A note if only one of the training data and a later table has column names."""
    if known == named:
        return None
    why = "there is no header" if known else "the training data have no column names"
    return f"{why}, so columns are matched to those of the training data by position"


def one_column(source: object) -> DataError:
    """The error for a table with one column."""
    return DataError(f"{source}: expected features and a label; got one column")


def numbered(names: Sequence[str]) -> bool:
    """Whether `names` are 0, 1, 2, ... (possibly after an empty name for a pandas index)."""
    own = names[1:] if names and not names[0] else names
    return len(names) >= 3 and all(name == str(n) for n, name in enumerate(own))


def find(form: TableForm, name: str, what: str) -> int:
    """The position of a column given by its name, or else its number; `what` names it in errors.

    DataError if there is no such column, or more than one.
    """
    positions = [index for index, own in enumerate(form.names) if own == name]
    if len(positions) == 1:
        return positions[0]
    if positions:
        raise DataError(
            f"{form.source}: columns {positions[0]} and {positions[1]} (from 0) are both named "
            f"{quoted(name)}; rename one, or give the number of the column"
        )
    if name.isascii() and name.isdigit() and int(name) < len(form.names):
        return int(name)
    more = ", ..." if len(form.names) > MAX_SHOWN_COLUMNS else ""
    names = ", ".join(form.names[:MAX_SHOWN_COLUMNS])
    what = f"{what} " if what else ""
    raise DataError(f"{form.source} has no {what}column {name!r}: its columns are {names}{more}")


def find_labels(form: TableForm, names: Sequence[str]) -> tuple[int, ...]:
    """The positions of the label columns; DataError like `find`, or for one that is named twice."""
    found = tuple(find(form, name, "label") for name in names)
    for n, position in enumerate(found):
        if position in found[:n]:
            raise DataError(
                f"{form.source}: column {quoted(form.names[position])} is given twice as a label "
                "column; expected each once"
            )
    return found


def find_label(form: TableForm, names: Sequence[str]) -> int:
    """The position of the only label column; DataError for several, which need an encoding."""
    first, *more = find_labels(form, names)
    if more:
        raise DataError(
            f"{form.source}: expected one label column, because these rows are read as numbers "
            f"without a table encoding; got {len(names)}"
        )
    return first


def find_features(
    names: Sequence[str], known: Sequence[str], where: str, label: int | None = None
) -> list[int]:
    """Find the column of each `known` feature; the column `label` is not a feature.

    DataError if a feature is missing or its name is not unique, unless the names are the known
    names in the same order. `where` names the table in error messages.
    """
    columns = [column for column in range(len(names)) if column != label]
    if [names[column] for column in columns] == list(known):
        return columns
    positions: dict[str, int] = {}
    needed = set(known)
    for column in columns:
        first = positions.setdefault(names[column], column)
        if first != column and names[column] in needed:
            raise DataError(
                f"{where}: columns {first} and {column} (from 0) are both named "
                f"{quoted(names[column])}, so columns cannot be matched to the training data by "
                "name; rename one, or use the column order of the training data"
            )
    missing = [name for name in known if name not in positions]
    if missing:
        used = label is not None and names[label] in missing
        raise DataError(
            f"{where}: expected the {len(known)} features of the training data as columns, in any "
            f"order; got no column {shown_names(missing, 5, quoted)}"
            f"{' in addition to the label column' if used else ''}"
        )
    if len(needed) < len(known):
        twice = next(name for n, name in enumerate(known) if name in known[:n])
        raise DataError(
            f"{where}: the training data have two columns named {quoted(twice)}, so columns "
            "cannot be matched by name; use the column order of the training data"
        )
    return [positions[name] for name in known]


def shown_names(
    names: Sequence[str], most: int = 12, show: Callable[[str], str] = printable
) -> str:
    """The first names, and the number of further names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(show, names[:most])) + more
