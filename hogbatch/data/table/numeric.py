"""The encoder of columns of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.order import RowNumbers
from hogbatch.data.schema import FLOAT64_MAX, TO_ZERO, expect, within
from hogbatch.data.table.columns import Column, Kind, NumberColumn
from hogbatch.data.table.encoder import Block, StoredByField

QUANTILES: Final = 101
UNIFORM_DEVIATION: Final = 12**-0.5  # of numbers spread evenly over [0, 1]
BOUND: Final = 3.0  # of robustly scaled numbers
PIECES: Final = 16  # intervals of a piecewise linear encoding
MAX_VALUES: Final = 64  # different values of a column whose values have features;
ROWS: Final = 1_000  # it also needs this many training rows,
ROWS_OF_VALUES: Final = 50  # and on average this many for each value
MIN_ROWS: Final = 20  # a value in fewer training rows has no feature


@dataclass(frozen=True, slots=True, eq=False)
class NumericEncoder(StoredByField):
    """A number as (x - mean) / scale, or as its place among the quantiles of the training rows.

    A missing value is 0, and sets an indicator if the training rows have missing values. If they
    have only one number, all numbers become 0.

    If `bounded`, z = (x - mean) / scale becomes z / sqrt(1 + (z / BOUND)^2), and mean and scale are
    the median and the distance of the quartiles (Holzmüller, Grinsztajn & Steinwart 2024, "Better
    by default"). With `edges`, those of T intervals, each interval has a feature in addition: the
    fraction of it that lies below x (Gorishniy, Rubachev & Babenko 2022, "On embeddings for
    numerical features in tabular deep learning"). With `values`, each of these K numbers has a
    feature after those, which is 1 where x is that number: a network learns what is special about
    a month or an hour sooner from its own weights than from a function of the number.
    """

    kind: ClassVar[Kind] = "number"

    mean: float
    scale: float
    fill: float  # in place of a missing value, before scaling
    indicator: bool
    quantiles: NDArray[np.float64] | None = None  # ascending and distinct, at least two
    bounded: bool = False
    edges: NDArray[np.float64] | None = None  # [T + 1], ascending and distinct
    values: NDArray[np.float64] | None = None  # [K], ascending and distinct, at least two

    @property
    def stored(self) -> int:
        """The number of stored values per row."""
        return (1 if self.edges is None else len(self.edges)) + (self.values is not None)

    @property
    def width(self) -> int:
        """The number of features; the indicator is the last one."""
        more = 0 if self.values is None else len(self.values) - 1
        return self.stored + more + self.indicator

    @property
    def linear(self) -> bool:
        """Whether the only feature is a linear function of the number."""
        return self.width == 1 and self.quantiles is None and not self.bounded

    def validate(self, name: str) -> None:
        """ValueError, with `name`, for values that `fit` does not return."""
        expect(self.scale > 0, f"{name}.scale: expected a number above 0; got {self.scale}")
        for field in ("quantiles", "edges", "values"):
            if (places := getattr(self, field)) is not None:
                ascend = len(places) > 1 and (places[1:] > places[:-1]).all()
                finite = within(places, -FLOAT64_MAX, FLOAT64_MAX)
                expect(ascend and finite, f"{name}.{field}: expected ascending numbers")

    @classmethod
    def fit(cls, column: Column, rows: RowNumbers, scaling: str) -> "NumericEncoder":
        """Fit the statistics; `scaling` is robust, ple, standard, max, none or quantile."""
        assert isinstance(column, NumberColumn)
        present = found = column.values.take(rows).astype(np.float64, copy=False)
        if indicator := bool((missing := np.isnan(found)).any()):
            present = found[~missing]
        if not len(present):
            return cls(0.0, TO_ZERO, 0.0, indicator)
        mean, deviation = float(present.mean()), float(present.std())
        if deviation <= 1e-12 * abs(mean):
            return cls(mean, TO_ZERO, mean, indicator)
        if scaling == "none":
            return cls(0.0, 1.0, mean, indicator)
        if scaling == "max":
            return cls(0.0, float(np.abs(present).max()), mean, indicator)
        if scaling == "quantile" and len(places := _quantiles(present, QUANTILES)) > 1:
            return cls(0.5, UNIFORM_DEVIATION, mean, indicator, places)
        if scaling == "robust":
            return cls._robust(present, indicator)
        pieces = scaling == "ple" and not _has_two(present)
        edges = _quantiles(present, PIECES + 1) if pieces else None
        return cls(mean, deviation, mean, indicator, edges=edges)

    @classmethod
    def _robust(cls, present: NDArray[np.float64], indicator: bool) -> "NumericEncoder":
        """Two numbers become -1 and 1."""
        low, high = float(present.min()), float(present.max())
        half = high / 2 - low / 2
        if _has_two(present):
            return cls(low + half, half, low + half, indicator)
        lower, median, upper = np.quantile(present, (0.25, 0.5, 0.75)).tolist()
        scale = upper - lower if upper > lower else half
        return cls(median, scale, median, indicator, bounded=True)

    @property
    def plain(self) -> bool:
        """Whether it has one stored value, which is not a place among quantiles."""
        return self.stored == 1 and self.quantiles is None

    def with_values(self, column: Column, rows: RowNumbers) -> "NumericEncoder":
        """This encoder; for whole numbers that are repeated often, with features of values."""
        assert isinstance(column, NumberColumn)
        found, counts = np.unique(column.values.take(rows), return_counts=True)
        known = ~np.isnan(found)
        found, counts = found[known], counts[known]
        whole = 2 < len(found) <= MAX_VALUES and (found == np.rint(found)).all()
        own = found[counts >= MIN_ROWS].astype(np.float64)
        if whole and len(own) > 1 and counts.sum() >= max(ROWS, ROWS_OF_VALUES * len(found)):
            return replace(self, values=own)
        return self

    def if_it_varies_later(self) -> "NumericEncoder":
        """This encoder; if all rows have one number, with a scale for other numbers."""
        constant = self.scale == TO_ZERO and not self.indicator
        return replace(self, scale=1.0) if constant else self

    def encode(self, column: Column, rows: RowNumbers) -> Block:
        """The features of some rows of a column."""
        assert isinstance(column, NumberColumn)
        cells = column.values.take(rows).astype(np.float64, copy=False)
        missing = np.isnan(cells)
        cells[missing] = self.fill
        values = np.empty((len(rows), self.stored), np.float32)
        features = np.arange(self.stored, dtype=np.int32)[np.newaxis]
        if self.edges is not None:
            low, high = self.edges[:-1], self.edges[1:]
            pieces = ((cells[:, np.newaxis] - low) / (high - low)).clip(0, 1)
            values[:, 1 : len(self.edges)] = pieces
        values[:, 0] = self._scaled(cells)
        if self.indicator or self.values is not None:
            features = np.broadcast_to(features, values.shape).copy()
        if self.values is not None:
            places = np.searchsorted(self.values, cells).clip(max=len(self.values) - 1)
            features[:, -1] += places
            values[:, -1] = (self.values[places] == cells) & ~missing
        if self.indicator:
            features[missing, 0] = self.width - 1
            values[missing, 0] = 1.0
        return Block(features, values)

    def _scaled(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.quantiles is not None:
            places = np.linspace(0, 1, len(self.quantiles))
            cells = np.interp(cells, self.quantiles, places)
        scaled = (cells - self.mean) / self.scale
        return _bounded(scaled) if self.bounded else scaled


class PlainNumbers(NamedTuple):
    """The encoders of K columns of numbers that have one stored value each, as one encoder.

    A row is encoded in a few operations instead of some for each column.
    """

    mean: NDArray[np.float64]  # [K], like the next ones as in `NumericEncoder`
    scale: NDArray[np.float64]
    fill: NDArray[np.float64]
    bounded: NDArray[np.bool_]
    features: NDArray[np.int32]  # [K]
    if_missing: NDArray[np.int32]  # [K], the feature of a missing value; the same without indicator

    @classmethod
    def of(cls, encoders: Sequence[tuple[int, NumericEncoder]]) -> "PlainNumbers":
        """The `encoders`, each with its first feature; none has quantiles or edges."""
        found = [
            (each.mean, each.scale, each.fill, each.bounded, first, first + each.indicator)
            for first, each in encoders
        ]
        columns = zip(*found, strict=True) if found else [()] * len(cls._fields)
        types = np.float64, np.float64, np.float64, np.bool_, np.int32, np.int32
        return cls(*map(np.array, columns, types))

    def encode(self, cells: NDArray[np.float64]) -> Block:
        """The features of rows of cells[B, K], which are overwritten; NaN where missing."""
        missing, features = np.isnan(cells), self.features[np.newaxis]
        if gaps := missing.any():
            np.copyto(cells, self.fill, where=missing)
        cells -= self.mean
        cells /= self.scale
        if self.bounded.any():
            bounded = _bounded(cells)
            cells = bounded if self.bounded.all() else np.where(self.bounded, bounded, cells)
        values = cells.astype(np.float32)
        if gaps:
            features = np.where(missing, self.if_missing, self.features)
            values[missing & (self.if_missing != self.features)] = 1.0
        return Block(features, values)


def _bounded(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    """z / sqrt(1 + (z / BOUND)^2), without a square, which could overflow."""
    return BOUND * np.sin(np.arctan(scaled / BOUND))


def _has_two(numbers: NDArray[np.float64]) -> bool:
    """Whether there are at most two different numbers."""
    return bool(((numbers == numbers.min()) | (numbers == numbers.max())).all())


def _quantiles(numbers: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The distinct ones of `count` evenly spaced quantiles."""
    return np.unique(np.quantile(numbers, np.linspace(0, 1, count)))
