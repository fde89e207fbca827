"""Which column of a table holds which feature: by name where both sides have names.

Names are compared as they are written in the header, less blanks around them. A table without
names, and one whose names are only the numbers of its columns, is matched by position.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.raw import Columns, Options
from hogbatch.data.source import Source
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted

LABEL: Final = -1  # in `Assignment.places`: the label column,
IGNORED: Final = -2  # and a column that is not read
SHOWN_NAMES: Final = 5
SHOWN_COLUMNS: Final = 20


class Table(NamedTuple):
    """What the first lines of a file tell."""

    source: Source
    delimiter: str
    width: int  # columns, D
    names: tuple[str, ...]  # [D], or empty without a header
    line: int  # number of the first line that is not blank, from 1
    numbered: bool = False  # the names are only the numbers of the columns


class Assignment(NamedTuple):
    """What the columns of a table are read as."""

    width: int  # D
    sources: Sequence[int]  # [F]: the column that holds each feature
    label: int | None  # the label column
    notes: tuple[str, ...] = ()

    @property
    def places(self) -> NDArray[np.int32]:
        """The feature that each column holds, or LABEL, or IGNORED: int32[D]."""
        places = np.full(self.width, IGNORED, np.int32)
        places[list(self.sources)] = np.arange(len(self.sources))
        if self.label is not None:
            places[self.label] = LABEL
        return places

    def columns(self, table: Table) -> Columns:
        """Names and position by which the columns of later tables are found."""
        if not table.names:
            return Columns(position=self.label)
        label = None if self.label is None else table.names[self.label]
        return Columns(tuple(table.names[column] for column in self.sources), label, self.label)


def assign(table: Table, options: Options) -> Assignment:
    """Decide what each column of `table` is, for training or for the model of `options`.

    DataError if the label column of the options is not there, if a feature of the model is not
    there, or if two columns have a name that is needed.
    """
    known = options.columns or Columns()
    if known.names and table.names and comparable(table.names, known.names, table.numbered):
        return _by_name(table, options.label, known)
    assigned = by_position(table.width, _label_column(table, options, known))
    if known.names and table.numbered:
        why = "the header has only column numbers"
    elif known.names:
        why = "there is no header"
    elif known.position is not None and table.names and not table.numbered:
        why = "the training data have no column names"
    else:
        return assigned
    note = f"{why}, so columns are matched with those of the training data by position"
    return assigned._replace(notes=(note,))


def by_position(width: int, label: int | None) -> Assignment:
    """Every column but the label column is a feature, in the order of the file."""
    return Assignment(width, [column for column in range(width) if column != label], label)


def comparable(names: Sequence[str], known: Collection[str], numbered: bool) -> bool:
    """Whether `names` can be those of `known` columns: numbers only if some are known by them."""
    return not numbered or not set(known).isdisjoint(names)


def numbered(names: Sequence[str]) -> bool:
    """Whether `names` are 0, 1, 2, ... (after an empty one for the row names of pandas)."""
    own = names[1:] if names and not names[0] else names
    return len(names) >= 3 and all(name == str(n) for n, name in enumerate(own))


def find_features(
    names: Sequence[str], known: Sequence[str], where: str, label: int | None = None
) -> list[int]:
    """Find the column of each of the `known` features; column `label` is none of them.

    DataError if one is missing, or has a name that several columns have, unless the names are the
    known ones in the same order. `where` says in the message which table this is.
    """
    columns = [column for column in range(len(names)) if column != label]
    if [names[column] for column in columns] == list(known):
        return columns
    places: dict[str, int] = {}
    needed = set(known)
    for column in columns:
        first = places.setdefault(names[column], column)
        if first != column and names[column] in needed:
            raise DataError(
                f"{where}: columns {first} and {column} (from 0) are both named "
                f"{quoted(names[column])}, so that columns cannot be matched with the training "
                "data by name; rename one, or keep the training data's order of columns"
            )
    missing = [name for name in known if name not in places]
    if missing:
        used = label is not None and names[label] in missing
        raise DataError(
            f"{where}: expected the {len(known)} features of the training data as columns, in any "
            f"order; got no column {_shown(missing)}{' beside the label column' if used else ''}"
        )
    if len(needed) < len(known):
        twice = next(name for n, name in enumerate(known) if name in known[:n])
        raise DataError(
            f"{where}: the training data have two columns named {quoted(twice)}, so that columns "
            "cannot be matched by name; give them in the order of the training data"
        )
    return [places[name] for name in known]


def in_order(frame: Any, known: Sequence[str]) -> Any:
    """Put the columns of a data frame (`columns`, `[[...]]`) into the order of `known` features.

    DataError as from `find_features`.
    """
    keys = list(frame.columns)
    names = [str(key) for key in keys]
    if not comparable(names, known, numbered(names)):
        return frame
    sources = find_features(names, known, "the data frame")
    return frame if sources == list(range(len(keys))) else frame[[keys[n] for n in sources]]


def _by_name(table: Table, label: str | None, known: Columns) -> Assignment:
    column = _known_label(table, known) if label is None else _named(table, label)
    where = f"{table.source}:{table.line}"
    sources = find_features(table.names, known.names, where, column)
    used = {*sources, column}
    extra = [name for n, name in enumerate(table.names) if n not in used]
    notes: tuple[str, ...] = ()
    if extra:
        one = len(extra) == 1
        count, them = ("1 column is", "it") if one else (f"{len(extra)} columns are", "them")
        notes = (f"{count} ignored, for the training data lack {them}: {_shown(extra)}",)
    return Assignment(table.width, sources, column, notes)


def _known_label(table: Table, known: Columns) -> int | None:
    """The label column of a table with names, if it has one; features may have the same name."""
    if known.label is None or known.position is None or table.names == known.names:
        return None
    before, after = known.names[: known.position], known.names[known.position :]
    if table.names == (*before, known.label, *after):
        return known.position
    return _once(table, known.label) if known.label in table.names else None


def _label_column(table: Table, options: Options, known: Columns) -> int | None:
    """The label column where columns go by their position."""
    if options.label is not None:
        column = _named(table, options.label)
    elif options.features == table.width:
        return None
    else:
        last = table.width - 1
        column = last if known.position is None else min(known.position, last)
    if table.width < 2:
        raise DataError(
            f"{table.source}:{table.line}:1: expected features and a label, separated by commas or "
            "tabs; got one column"
        )
    return column


def _named(table: Table, label: str) -> int:
    """The column that --label means: by name, or else by number."""
    if label in table.names:
        return _once(table, label)
    if label.isascii() and label.isdigit() and int(label) < table.width:
        return int(label)
    raise DataError(f"{table.source} has no label column {label!r}: {_columns(table)}")


def _once(table: Table, label: str) -> int:
    column = table.names.index(label)
    if label in table.names[column + 1 :]:
        other = table.names.index(label, column + 1)
        raise DataError(
            f"{table.source}:{table.line}: columns {column} and {other} (from 0) are both named "
            f"{quoted(label)}; give the number of the label column with --label"
        )
    return column


def _columns(table: Table) -> str:
    if not table.names:
        return f"its {table.width} columns have no names; give a number from 0 to {table.width - 1}"
    more = ", ..." if table.width > SHOWN_COLUMNS else ""
    return f"its {table.width} columns are {', '.join(table.names[:SHOWN_COLUMNS])}{more}"


def _shown(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(map(quoted, names[:SHOWN_NAMES])) + more
