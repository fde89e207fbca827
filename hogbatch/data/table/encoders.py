"""Encoders: how a column of a table becomes features.

An encoder is fitted on the training rows. It has `width` features, numbered from 0, and stores
`stored` of them for each row (texts: a number that varies). All plain numbers are encoded in one
pass, and each other column alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.order import RowNumbers
from hogbatch.data.schema import FLOAT32_MAX, convert, expect, within
from hogbatch.data.table.columns import (
    NO_VALUE,
    CategoryColumn,
    Column,
    DateColumn,
    Kind,
    NumberColumn,
    Table,
    TextColumn,
    to_categories,
)
from hogbatch.data.table.encoder import Arrays, Block, StoredByField
from hogbatch.data.table.numeric import NumericEncoder, PlainNumbers
from hogbatch.data.table.sequences import SequenceEncoder
from hogbatch.data.table.words import BUCKETS, Terms, hashes_of, terms

FREQUENT: Final = 0.1  # values in this fraction of the rows weigh 1, rarer ones less
MAX_VALUES: Final = 10_000  # a column with more distinct values is hashed,
HASH_BITS: Final = 14  # into 2^14 features,
PLACE_BITS: Final = 17  # and into 2^17 places of means, in which few values collide
RARE_ROWS: Final = 5  # a value in fewer training rows has no feature of its own,
RARE_FRACTION: Final = 0.01  # unless that is this fraction of them
DAY: Final = 86_400.0  # seconds
CYCLES: Final = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}
MIN_YEAR: Final = 60 * DAY  # dates within a shorter span have no cycle of a year
MAX_TERMS: Final = 1 << 17  # features of a text column
MIN_TERM_ROWS: Final = 2  # rarer words have no feature, in large training sets
SMALL_ROWS: Final = 100
MEANS_VALUES: Final = 20  # a column with more values has means of labels
UNFITTED: Final = np.empty(0, np.float32)  # weights


@dataclass(frozen=True, slots=True, eq=False)
class DateEncoder:
    """A date as a number, and its place in a day, a week and a year as sine and cosine."""

    kind: ClassVar[Kind] = "date"

    number: NumericEncoder
    cycles: tuple[str, ...]  # names in CYCLES

    @property
    def stored(self) -> int:
        """The number of stored values per row."""
        return self.width

    @property
    def width(self) -> int:
        """The number of features."""
        return self.number.width + 2 * len(self.cycles)

    @classmethod
    def fit(cls, column: Column, rows: RowNumbers, scaling: str) -> "DateEncoder":
        """Fit the number, and choose the cycles that differ between the training rows."""
        assert isinstance(column, DateColumn)
        found: NDArray[Any] = column.values[rows]
        present = found[~np.isnan(found)]
        cycles = [name for name, period in CYCLES.items() if np.ptp(present % period, axis=0) > 0]
        if "year" in cycles and np.ptp(present) < MIN_YEAR:
            cycles.remove("year")
        if "week" in cycles and (present < DAY).all() and (present >= 0).all():  # times of day
            cycles = ["day"]
        setting = "standard" if scaling in ("none", "max") else scaling
        return cls(NumericEncoder.fit(NumberColumn(column.values), rows, setting), tuple(cycles))

    def encode(self, column: Column, rows: RowNumbers) -> Block:
        """The features of some rows of a column."""
        assert isinstance(column, DateColumn)
        values = np.zeros((len(rows), self.width), np.float32)
        own = self.number.encode(NumberColumn(column.values), rows)
        np.put_along_axis(values, own.features.astype(np.int64), own.values, axis=1)
        missing = np.isnan(found := column.values[rows])
        for n, name in enumerate(self.cycles):
            angle = np.where(missing, 0.0, found % CYCLES[name] * (2 * np.pi / CYCLES[name]))
            at = self.number.width + 2 * n
            values[:, at] = np.where(missing, 0.0, 2**0.5 * np.sin(angle))
            values[:, at + 1] = np.where(missing, 0.0, 2**0.5 * np.cos(angle))
        return Block(np.arange(self.width, dtype=np.int32)[np.newaxis], values)

    def description(self) -> dict[str, Any]:
        """The scalars, as JSON."""
        return {"number": self.number.description(), "cycles": self.cycles}

    def arrays(self) -> Arrays:
        """The arrays by name."""
        return self.number.arrays()

    @classmethod
    def from_description(cls, found: Mapping[str, Any], arrays: Arrays, name: str) -> "DateEncoder":
        """The encoder with these scalars and arrays; ValueError, with `name`, for others."""
        numbers = convert(found.get("number"), dict[str, Any], f"{name}.number")
        number = NumericEncoder.from_description(numbers, arrays, f"{name}.number")
        cycles = convert(found.get("cycles"), tuple[str, ...], f"{name}.cycles")
        known = [cycle for cycle in CYCLES if cycle in cycles]
        expect([*cycles] == known, f"{name}.cycles: expected some of {[*CYCLES]}; got {[*cycles]}")
        return cls(number, cycles)


@dataclass(frozen=True, slots=True, eq=False)
class CategoryEncoder(StoredByField):
    """A category as one feature per value: one-hot, but rare values weigh less.

    Optimizers with a rate per weight learn a feature of few rows as fast as one of many, and would
    overfit it: a value in a fraction p < FREQUENT of the rows weighs (p / FREQUENT)^(1/4).
    Values in few training rows share a feature. Values in a single training row train the feature
    of the values that later rows have and training rows lack. More than MAX_VALUES values are
    hashed. With `means`, each row has C features more: the mean labels of the rows with its value.
    A value has a place there: its number in `values`, behind them in `rare`, or its hash; the last
    two are those of unknown values (if there are no hashes) and of missing ones. 5.0 is found as 5.
    """

    kind: ClassVar[Kind] = "category"

    values: tuple[str, ...]  # with a feature each; empty if hashed
    rare: tuple[str, ...]  # that share a feature
    hashed: bool
    missing: bool  # whether missing values have a feature
    weights: NDArray[np.float32]  # [K], of the features of values
    means: NDArray[np.float32] | None = None  # [places * C], by places

    @property
    def _own(self) -> int:
        return 1 << HASH_BITS if self.hashed else len(self.values)

    @property
    def _one_hot(self) -> int:
        return self._own + bool(self.rare) + (not self.hashed) + self.missing

    @property
    def places(self) -> int:
        """The number of places of values."""
        return 2 + (1 << PLACE_BITS if self.hashed else len(self.values) + len(self.rare))

    @property
    def labels(self) -> int:
        """C, the number of mean labels of a value."""
        return 0 if self.means is None else len(self.means) // self.places

    @property
    def stored(self) -> int:
        """The number of stored values per row."""
        return 1 + self.labels

    @property
    def width(self) -> int:
        """The number of features."""
        return self._one_hot + self.labels

    def validate(self, name: str) -> None:
        """ValueError, with `name`, for values that `fit` does not return."""
        named = [*self.values, *self.rare]
        distinct = len({*named}) == len(named) and not (self.hashed and named)
        expect(distinct, f"{name}.values: expected distinct ones, and none if they are hashed")
        fit = len(self.weights) == self._one_hot and within(self.weights, 0, 1)
        expect(fit, f"{name}.weights: expected {self._one_hot} numbers from 0 to 1")
        if self.means is not None:
            fit = len(self.means) > 0 and len(self.means) % self.places == 0
            finite = within(self.means, -FLOAT32_MAX, FLOAT32_MAX)
            expect(fit and finite, f"{name}.means: expected numbers for {self.places} places")

    @classmethod
    def fit(cls, column: Column, rows: RowNumbers, scaling: str) -> "CategoryEncoder":
        """Choose the values with a feature, in the order of the text."""
        assert isinstance(column, CategoryColumn)
        codes = column.codes[rows]
        counts = np.bincount(codes[codes != NO_VALUE], minlength=len(column.values))
        missing = bool((codes == NO_VALUE).any())
        hashed = bool(np.count_nonzero(counts) > MAX_VALUES)
        own = shared = tuple[str, ...]()
        if not hashed:
            few = min(RARE_ROWS, int(np.ceil(RARE_FRACTION * len(rows))))
            frequent = np.flatnonzero((counts >= few) & (counts > 0))
            rare = np.flatnonzero((counts < few) & (counts > 1))
            own = tuple(sorted(column.values[n] for n in frequent.tolist()))
            shared = tuple(sorted(column.values[n] for n in rare.tolist()))
        plain = cls(own, shared, hashed, missing, UNFITTED)
        features = plain._features(plain.places_of(column, rows))
        counts = np.bincount(features, minlength=plain._one_hot)  # 0: nothing is known of a feature
        weights = np.minimum(1, (counts / (FREQUENT * max(len(rows), 1))) ** 0.25)
        return replace(plain, weights=weights.astype(np.float32))

    def encode(self, column: Column, rows: RowNumbers) -> Block:
        """The features of some rows of a column."""
        categories = to_categories(column)
        places = self._find(categories)[categories.codes[rows]]
        features = self._features(places)[:, np.newaxis]
        values = self.weights[features]
        if self.means is None:
            return Block(features, values)
        of_means = np.arange(self._one_hot, self.width, dtype=np.int32)
        more = np.broadcast_to(of_means, (len(rows), self.labels))
        means = self.means.reshape(self.places, -1)[places]
        return Block(np.hstack([features, more]), np.hstack([values, means]))

    @property
    def has_many(self) -> bool:
        """Whether there are so many values that means of labels may be better than one-hot."""
        return self.places - 2 > MEANS_VALUES

    def places_of(self, column: Column, rows: RowNumbers) -> NDArray[np.intp]:
        """The places of some rows of the training table: [N]."""
        assert isinstance(column, CategoryColumn)
        return self._find(column)[column.codes[rows]]

    def _find(self, categories: CategoryColumn) -> NDArray[np.intp]:
        """The place of each code; the last one is that of NO_VALUE."""
        if self.hashed:
            places = (hashes_of(categories.values) >> np.uint64(64 - PLACE_BITS)).astype(np.intp)
        else:
            named = (*self.values, *self.rare)
            known = {each: n for form in (_whole, str) for n, each in enumerate(map(form, named))}
            found = (known.get(e, known.get(_whole(e), len(named))) for e in categories.values)
            places = np.fromiter(found, np.intp)
        return np.append(places, self.places - 1)

    def _features(self, places: NDArray[np.intp]) -> NDArray[np.int32]:
        """The feature of each place; missing values may have that of unknown ones."""
        known = places >> PLACE_BITS - HASH_BITS if self.hashed else places.clip(max=self._own)
        missing, unknown = places == self.places - 1, places == self.places - 2
        of_unknown = self._own - 1 if self.hashed else self._own + bool(self.rare)
        others = [self._one_hot - 1, of_unknown]
        return np.select([missing, unknown], others, known).astype(np.int32)


def _whole(value: str) -> str:
    """A whole number without the .0 that programs write if a cell of its column is missing."""
    number = value.endswith(".0") and value[:-2].lstrip("-").isdecimal()
    return value[:-2] if number else value


@dataclass(frozen=True, slots=True, eq=False)
class TextEncoder(StoredByField):
    """A text as TF-IDF of its words and word pairs, which are hashed; the norm of a row is 1."""

    kind: ClassVar[Kind] = "text"
    stored: ClassVar[int] = 0  # besides the words

    buckets: NDArray[np.int32]  # [K], ascending: the hashes with a feature
    idf: NDArray[np.float32]  # [K]

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.buckets)

    def validate(self, name: str) -> None:
        """ValueError, with `name`, for values that `fit` does not return."""
        ascend = (self.buckets[1:] > self.buckets[:-1]).all()
        known = ascend and within(self.buckets, 0, BUCKETS - 1)
        expect(known, f"{name}.buckets: expected ascending numbers below {BUCKETS}")
        fit = len(self.idf) == self.width and within(self.idf, 1, FLOAT32_MAX)
        expect(fit, f"{name}.idf: expected {self.width} numbers from 1")

    @classmethod
    def fit(cls, column: Column, rows: RowNumbers, scaling: str) -> "TextEncoder":
        """Choose the words that occur in most training rows, and weigh rare ones more."""
        assert isinstance(column, TextColumn)
        counts = np.zeros(BUCKETS, np.int64)
        for _, found in terms(column, rows):
            counts += np.bincount(found.buckets, minlength=BUCKETS)
        least = MIN_TERM_ROWS if len(rows) >= SMALL_ROWS else 1
        buckets = np.flatnonzero(counts >= least)
        if len(buckets) > MAX_TERMS:
            most = np.argsort(-counts[buckets], kind="stable")[:MAX_TERMS]
            buckets = np.sort(buckets[most])
        idf = 1 + np.log((1 + len(rows)) / (1 + counts[buckets]))
        return cls(buckets.astype(np.int32), idf.astype(np.float32))

    def weigh(
        self, terms: Terms, rows: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """The row, the feature and the value of each known term."""
        features = np.full(BUCKETS, -1, np.int32)
        features[self.buckets] = np.arange(len(self.buckets))
        own = features[terms.buckets]
        known = own >= 0
        row, own = terms.rows[known], own[known]
        values = (1 + np.log(terms.counts[known])) * self.idf[own]
        norms = np.sqrt(np.bincount(row, values**2, rows))
        return row, own, (values / norms[row]).astype(np.float32)


ColumnEncoder: TypeAlias = NumericEncoder | DateEncoder | CategoryEncoder | SequenceEncoder
Encoder: TypeAlias = ColumnEncoder | TextEncoder
ENCODERS: Final[dict[Kind, type[Encoder]]] = {
    each.kind: each
    for each in (NumericEncoder, DateEncoder, CategoryEncoder, SequenceEncoder, TextEncoder)
}


class EncodedTogether(NamedTuple):
    """Columns of a `TableEncoding` that are encoded together."""

    columns: tuple[int, ...]  # places in `TableEncoding.columns`
    stored: NDArray[np.intp]  # the places of their stored values among those of a row
    first: int  # to be added to the features
    encoder: PlainNumbers | ColumnEncoder

    def encode(self, table: Table, rows: RowNumbers) -> Block:
        """The features of some rows of the columns."""
        if not isinstance(self.encoder, PlainNumbers):
            block = self.encoder.encode(table.columns[self.columns[0]], rows)
            return block._replace(features=block.features + np.int32(self.first))
        cells = np.empty((len(rows), len(self.columns)))
        for place, n in enumerate(self.columns):
            column = table.columns[n]
            assert isinstance(column, NumberColumn)
            cells[:, place] = column.values.take(rows)
        return self.encoder.encode(cells)


def encoded_together(encoders: Iterable[tuple[Encoder, int]]) -> tuple[EncodedTogether, ...]:
    """All columns but texts, from the encoder and the first feature of each column."""
    stored, plain, others = 0, [], list[EncodedTogether]()
    for n, (encoder, first) in enumerate(encoders):
        if isinstance(encoder, NumericEncoder) and encoder.plain:
            plain.append((n, stored, first, encoder))
        elif not isinstance(encoder, TextEncoder):
            places = np.arange(stored, stored + encoder.stored)
            others.append(EncodedTogether((n,), places, first, encoder))
        stored += encoder.stored
    if not plain:
        return tuple(others)
    numbers = PlainNumbers.of([(first, encoder) for _, _, first, encoder in plain])
    columns, at = tuple(n for n, *_ in plain), np.array([place for _, place, *_ in plain])
    return EncodedTogether(columns, at, 0, numbers), *others


def store(block: Block, dense: NDArray[np.float32]) -> None:
    """Put the stored values of rows in their places in dense[B, F]."""
    features, values = block
    if len(features) == 1:  # faster
        dense[:, features[0]] = values
    else:
        dense[np.arange(len(dense))[:, np.newaxis], features] = values
