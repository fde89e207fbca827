"""Mapping of table columns to features: by name if both tables have names, else by position.

Names are compared as written in the header, without surrounding blanks. A table without names, or
whose names are only column numbers, is matched by position.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.raw import Columns, ReadOptions
from hogbatch.data.source import Source
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted

LABEL: Final = -1  # in `ColumnMapping.destinations`: the label column
IGNORED: Final = -2  # in `ColumnMapping.destinations`: a column that is not read
# The index of a data frame, whose rows may be in any order: to_csv writes no name for it.
FRAME_INDEX: Final = re.compile(r"Unnamed: \d+|__index_level_\d+__")
MAX_SHOWN_NAMES: Final = 5
MAX_SHOWN_COLUMNS: Final = 20


class TableForm(NamedTuple):
    """The structure of a table, from the first lines of its file."""

    source: Source
    delimiter: str
    width: int  # columns, D
    names: tuple[str, ...]  # [D], or empty without a header
    line: int | None  # number of the first line that is not blank, from 1; None: no text file
    numbered: bool = False  # the names are only column numbers

    @property
    def place(self) -> str:
        """The file, and the line of the header if it has lines."""
        return str(self.source) if self.line is None else f"{self.source}:{self.line}"


class ColumnMapping(NamedTuple):
    """The feature or label that each column of a table is read as."""

    width: int  # D
    sources: Sequence[int]  # [F]: the column of each feature
    label: int | None  # the label column
    notes: tuple[str, ...] = ()

    @property
    def destinations(self) -> NDArray[np.int32]:
        """The feature number of each column, or LABEL, or IGNORED: int32[D]."""
        destinations = np.full(self.width, IGNORED, np.int32)
        destinations[list(self.sources)] = np.arange(len(self.sources))
        if self.label is not None:
            destinations[self.label] = LABEL
        return destinations

    def columns(self, table: TableForm) -> Columns:
        """Column names and label position, for matching the columns of later tables."""
        if not table.names:
            return Columns(position=self.label)
        label = None if self.label is None else table.names[self.label]
        return Columns(tuple(table.names[column] for column in self.sources), label, self.label)


def map_columns(table: TableForm, options: ReadOptions) -> ColumnMapping:
    """Map the columns of `table`, for training or for the model described by `options`.

    The index of a data frame is not a feature: the number of a row may reveal its label.
    DataError if the requested label column or a feature of the model is missing, or if two columns
    share a required name.
    """
    known = options.columns or Columns()
    if known.names and table.names and comparable(table.names, known.names, table.numbered):
        return _by_name(table, options.label, known)
    index = _has_index(table, options)
    label = _label_column(table, options, known, table.width - index)
    mapping = by_position(table.width, label, range(index))
    if index and known == Columns() and options.features is None:
        note = "column 0 is the index of a data frame and is left out"
        return mapping._replace(notes=(note,))
    if known.names and table.numbered:
        why = "the header has only column numbers"
    elif known.names:
        why = "there is no header"
    elif known.position is not None and table.names and not table.numbered:
        why = "the training data have no column names"
    else:
        return mapping
    note = f"{why}, so columns are matched to those of the training data by position"
    return mapping._replace(notes=(note,))


def _has_index(table: TableForm, options: ReadOptions) -> bool:
    """Whether the first column is the index of a data frame, and not requested as the label."""
    if not table.names or not FRAME_INDEX.fullmatch(table.names[0]):
        return False
    return options.label not in ("0", table.names[0])


def by_position(width: int, label: int | None, ignored: Collection[int] = ()) -> ColumnMapping:
    """Map all columns except the label and the `ignored` to features, in the order of the file."""
    features = [column for column in range(width) if column != label and column not in ignored]
    return ColumnMapping(width, features, label)


def comparable(names: Sequence[str], known: Collection[str], numbered: bool) -> bool:
    """Whether `names` can be matched to `known`; column numbers only if `known` has one."""
    return not numbered or not set(known).isdisjoint(names)


def numbered(names: Sequence[str]) -> bool:
    """Whether `names` are 0, 1, 2, ... (possibly after an empty name for a pandas index)."""
    own = names[1:] if names and not names[0] else names
    return len(names) >= 3 and all(name == str(n) for n, name in enumerate(own))


def header_names(cells: Sequence[str]) -> tuple[str, ...]:
    """The names in the `cells` of a header; columns without one have the name that pandas gives."""
    return tuple(cell or f"Unnamed: {column}" for column, cell in enumerate(cells))


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
            f"order; got no column {_shown(missing)}"
            f"{' in addition to the label column' if used else ''}"
        )
    if len(needed) < len(known):
        twice = next(name for n, name in enumerate(known) if name in known[:n])
        raise DataError(
            f"{where}: the training data have two columns named {quoted(twice)}, so columns "
            "cannot be matched by name; use the column order of the training data"
        )
    return [positions[name] for name in known]


def _by_name(table: TableForm, label: str | None, known: Columns) -> ColumnMapping:
    column = _known_label(table, known) if label is None else _named(table, label)
    sources = find_features(table.names, known.names, table.place, column)
    used = {*sources, column}
    unused = [name for n, name in enumerate(table.names) if n not in used]
    extra = [name for name in unused if not FRAME_INDEX.fullmatch(name)]
    notes: tuple[str, ...] = ()
    if extra:
        one = len(extra) == 1
        count, them = ("1 column is", "it") if one else (f"{len(extra)} columns are", "them")
        notes = (f"{count} ignored because the training data lack {them}: {_shown(extra)}",)
    return ColumnMapping(table.width, sources, column, notes)


def _known_label(table: TableForm, known: Columns) -> int | None:
    """The label column of a table with names, or None; a feature may have the same name."""
    if known.label is None or known.position is None or table.names == known.names:
        return None
    before, after = known.names[: known.position], known.names[known.position :]
    if table.names == (*before, known.label, *after):
        return known.position
    return _once(table, known.label) if known.label in table.names else None


def _label_column(
    table: TableForm, options: ReadOptions, known: Columns, features: int
) -> int | None:
    """The label column when columns are matched by position; `features` include it, if any."""
    if options.label is not None:
        column = _named(table, options.label)
    elif options.features == features:
        return None
    else:
        last = table.width - 1
        column = last if known.position is None else min(known.position, last)
    if features < 2:
        if table.line is None:
            raise DataError(f"{table.source}: expected features and a label; got one column")
        raise DataError(
            f"{table.place}:1: expected features and a label, separated by commas or tabs; got one "
            "column"
        )
    return column


def _named(table: TableForm, label: str) -> int:
    """The column given by --label: a name, or else a number."""
    if label in table.names:
        return _once(table, label)
    if label.isascii() and label.isdigit() and int(label) < table.width:
        return int(label)
    raise DataError(f"{table.source} has no label column {label!r}: {_columns(table)}")


def _once(table: TableForm, label: str) -> int:
    column = table.names.index(label)
    if label in table.names[column + 1 :]:
        other = table.names.index(label, column + 1)
        raise DataError(
            f"{table.place}: columns {column} and {other} (from 0) are both named "
            f"{quoted(label)}; give the number of the label column with --label"
        )
    return column


def _columns(table: TableForm) -> str:
    if not table.names:
        return f"its {table.width} columns have no names; give a number from 0 to {table.width - 1}"
    more = ", ..." if table.width > MAX_SHOWN_COLUMNS else ""
    return f"its {table.width} columns are {', '.join(table.names[:MAX_SHOWN_COLUMNS])}{more}"


def _shown(names: Sequence[str]) -> str:
    """The first names, and the number of further names."""
    more = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
    return ", ".join(map(quoted, names[:MAX_SHOWN_NAMES])) + more
