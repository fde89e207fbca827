"""A table in memory, by columns. A column holds numbers, categories, dates or texts."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.columns import TableForm
from hogbatch.data.raw import is_missing
from hogbatch.errors import DataError
from hogbatch.machine.printable import digits

Kind = Literal["number", "category", "date", "text", "sequence"]
NO_VALUE: Final = -1  # the code of a missing category
FIRST_ROWS: Final = 1000  # most columns that vary do so in these
ENCODING: Final = "utf-8"
# Words for missing values, in lower case. Programs write the first; the others may be labels.
NO_CELL: Final = frozenset(("", "nan", "-nan", "#n/a", "<na>", "null"))
MISSING: Final = NO_CELL | {"-", ".", "?", "na", "n/a", "nil", "none", "missing"}


@dataclass(frozen=True, slots=True)
class Measures:
    """Base of the columns of numbers and of dates."""

    values: NDArray[np.float64] | NDArray[np.float32]  # [N], NaN where missing
    # How text was read: the decimal mark of numbers, or the format of dates; empty if it was not.
    form: str = ""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Whether each row has no value: bool[N]."""
        return np.isnan(self.values)


@dataclass(frozen=True, slots=True)
class NumberColumn(Measures):
    """A column of numbers."""

    kind: ClassVar[Kind] = "number"
    boolean: bool = False  # the column has the values true and false
    whole: bool = False  # of an integer type, or written without fractions


@dataclass(frozen=True, slots=True)
class CategoryColumn:
    """A column of text with repeated values."""

    kind: ClassVar[Kind] = "category"
    form: ClassVar[str] = ""
    codes: NDArray[np.int32]  # [N], places in `values`; NO_VALUE where missing
    values: Sequence[str]  # distinct
    declared: bool = False  # of a categorical type, so not numbers or dates written as text

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Whether each row has no value: bool[N]."""
        missing: NDArray[np.bool_] = self.codes == NO_VALUE
        return missing

    @property
    def rows(self) -> NDArray[np.int64]:
        """The number of rows with each value."""
        return np.bincount(self.codes[~self.missing], minlength=len(self.values))

    @classmethod
    def of(
        cls, codes: NDArray[np.int32], values: Sequence[str], missing: Collection[str] = ("",)
    ) -> "CategoryColumn":
        """Merge values that differ only by surrounding blanks; the words `missing` are no values.

        The words are in lower case. Values that do not occur are kept.
        """
        stripped = [value.strip() for value in values]
        places: dict[str, int] = {}
        new = [
            NO_VALUE if value.lower() in missing else places.setdefault(value, len(places))
            for value in stripped
        ]
        if new == list(range(len(values))):
            return cls(codes, stripped)
        renumbered = np.array([*new, NO_VALUE], np.int32)
        return cls(renumbered[codes], list(places))

    def without(self, missing: Collection[str]) -> "CategoryColumn":
        """This column, with the words `missing` as missing values."""
        return replace(self.of(self.codes, self.values, missing), declared=self.declared)

    @classmethod
    def of_cells(cls, cells: Iterable[Any]) -> "CategoryColumn":
        """Number the distinct cells; None and NaN are missing."""
        places: dict[Any, int] = {}
        codes = np.fromiter(
            (
                NO_VALUE if is_missing(cell) else places.setdefault(cell, len(places))
                for cell in cells
            ),
            np.int32,
        )
        return cls.of(codes, [as_text(value) for value in places])


@dataclass(frozen=True, slots=True)
class DateColumn(Measures):
    """A column of dates with or without times, or of times of day.

    The values are float64 seconds since 1970, without time zone.
    """

    kind: ClassVar[Kind] = "date"


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts, in lower case."""

    kind: ClassVar[Kind] = "text"
    form: ClassVar[str] = ""
    characters: NDArray[np.uint8]  # [n], all texts in UTF-8, one after the other
    indptr: NDArray[np.int64]  # [N + 1], the start of each text

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Whether each text is empty: bool[N]."""
        empty: NDArray[np.bool_] = self.indptr[1:] == self.indptr[:-1]
        return empty

    @classmethod
    def of(cls, texts: Iterable[str]) -> "TextColumn":
        """Convert text to lower case and join it."""
        encoded = [text.lower().encode(ENCODING, "replace") for text in texts]
        indptr = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=indptr[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), indptr)


Column: TypeAlias = NumberColumn | CategoryColumn | DateColumn | TextColumn
Place: TypeAlias = tuple[str, int]  # of a row in text: the file, and the line from 1


def taken(column: Column, rows: NDArray[np.int64]) -> Column:
    """Some rows of a column, in the order of `rows`."""
    match column:
        case NumberColumn() | DateColumn():
            return replace(column, values=column.values.take(rows))  # faster than [rows]
        case CategoryColumn():
            return replace(column, codes=column.codes[rows])
        case TextColumn():
            indptr, positions = csr.positions(column.indptr, rows)
            return TextColumn(column.characters[positions], indptr)


def varies(column: Column, rows: NDArray[np.int64]) -> bool:
    """Whether the `rows` of a column differ; a missing value differs from the others."""
    if isinstance(column, TextColumn):
        return True
    if len(rows) > FIRST_ROWS and varies(column, rows[:FIRST_ROWS]):
        return True  # as in most columns, whose other rows need not be read
    own = taken(column, rows)
    missing = own.missing
    if missing.any():
        return not missing.all()
    assert not isinstance(own, TextColumn)
    cells = own.codes if isinstance(own, CategoryColumn) else own.values
    return bool((cells != cells[:1]).any())


@dataclass(frozen=True, slots=True)
class Table:
    """A table with D columns, of which all or some are read."""

    source: str  # in messages
    names: tuple[str, ...]  # [D]; numbers from 0 without a header
    columns: Mapping[int, Column]  # by position, with M rows each
    named: bool = True  # whether the names are from the file
    places: Callable[[Sequence[int]], list[Place]] | None = None  # of ascending rows in text
    kept: NDArray[np.int64] | None = None  # [N], the rows that are used; None: all M
    comma: str = "."  # what a comma in a number is if nothing else decides: a decimal mark, or not
    indexes: frozenset[str] = frozenset()  # as in `TableForm`
    forms: Mapping[int, str] = field(default_factory=dict)  # how text is read, see `Measures`

    @property
    def form(self) -> TableForm:
        """The names of the columns."""
        return TableForm(self.source, self.names, self.named, self.indexes)

    @property
    def rows(self) -> int:
        """N."""
        if self.kept is not None:
            return len(self.kept)
        return next((len(column) for column in self.columns.values()), 0)

    def numbers(self, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """The rows of the columns that belong to `rows` of the table; None: all."""
        if rows is None:
            return np.arange(self.rows) if self.kept is None else self.kept
        return rows if self.kept is None else self.kept[rows]

    def of_rows(self, rows: NDArray[np.int64]) -> "Table":
        """A table with some ascending rows of the columns of this one, all of which it uses."""
        places = self.places
        return replace(
            self,
            columns={position: taken(column, rows) for position, column in self.columns.items()},
            places=None if places is None else lambda own: places([int(rows[n]) for n in own]),
        )

    def locator(self) -> Callable[[int], str]:
        """The function that returns the location of a row; it does not need the columns."""
        table = replace(self, columns={})
        return lambda row: table.locate(row if table.kept is None else int(table.kept[row]))

    def locate(self, number: int) -> str:
        """The location of a row of the columns: file:line, or the row number, from 0."""
        if self.places is not None:
            with suppress(DataError):  # the file has changed, or was a stream
                source, line = self.places([number])[0]
                return f"{source}:{line}"
        return f"{self.source}: row {number}"

    def lines(self, numbers: Sequence[int]) -> list[int]:
        """The line of each of some ascending rows of the columns; or the row number, from 0."""
        if self.places is not None:
            with suppress(DataError):
                return [line for _, line in self.places(numbers)]
        return list(numbers)


def joined(parts: Sequence[Column]) -> Column:
    """The rows of several columns, one after the other; as categories if their kinds differ."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if all(isinstance(part, TextColumn) for part in parts):
        texts = [part for part in parts if isinstance(part, TextColumn)]
        indptr = csr.joined([part.indptr for part in texts])
        used = [part.characters[part.indptr[0] : part.indptr[-1]] for part in texts]
        return TextColumn(np.concatenate(used), indptr)
    if all(isinstance(part, NumberColumn) or part.missing.all() for part in parts):
        numbers = [
            part.values if isinstance(part, NumberColumn) else np.full(len(part), np.nan)
            for part in parts
        ]
        own = [part for part in parts if isinstance(part, NumberColumn)]
        whole = all(part.whole or part.missing.all() for part in own)
        decimal = next((part.form for part in own if part.form), "")
        boolean = len(own) == len(parts) and all(part.boolean for part in own)
        return NumberColumn(np.concatenate(numbers), decimal, boolean, whole)
    if all(isinstance(part, DateColumn) for part in parts):
        dates: list[Any] = [part.values for part in parts if isinstance(part, DateColumn)]
        return DateColumn(np.concatenate(dates))
    categories = [to_categories(part) for part in parts]
    firsts = np.cumsum([0, *(len(part.values) for part in categories)])
    codes = [
        np.where(part.missing, NO_VALUE, part.codes + start)
        for part, start in zip(categories, firsts, strict=False)
    ]
    values = [value for part in categories for value in part.values]
    return CategoryColumn.of(np.concatenate(codes).astype(np.int32), values)


def as_text(value: Any) -> str:
    """A cell as text; whole numbers without a fraction, whatever their type."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(ENCODING, "backslashreplace")
    if isinstance(value, float | np.floating):
        return digits(value)
    return str(value)


def to_categories(column: Column) -> CategoryColumn:
    """Numbers and dates as text; texts by value."""
    if isinstance(column, CategoryColumn):
        return column
    if isinstance(column, TextColumn):
        return CategoryColumn.of_cells(strings(column))
    distinct, codes = np.unique(column.values, return_inverse=True, equal_nan=True)
    form = _boolean if isinstance(column, NumberColumn) and column.boolean else digits
    values = ["" if np.isnan(value) else form(value) for value in distinct]
    return CategoryColumn.of(codes.astype(np.int32), values)


def _boolean(value: float) -> str:
    return str(bool(value))


def to_texts(column: Column) -> TextColumn:
    """Categories, numbers and dates as texts."""
    if isinstance(column, TextColumn):
        return column
    categories = to_categories(column)
    values = [*categories.values, ""]
    return TextColumn.of(values[code] for code in categories.codes)


def strings(texts: TextColumn) -> Iterable[str]:
    """The texts as `str`."""
    content, bounds = texts.characters.tobytes(), pairwise(texts.indptr.tolist())
    return (content[start:end].decode(ENCODING, "replace") for start, end in bounds)
