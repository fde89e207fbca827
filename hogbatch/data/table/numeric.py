"""The encoder of columns of numbers."""

from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.order import RowNumbers
from hogbatch.data.schema import FLOAT64_MAX, TO_ZERO, expect, within
from hogbatch.data.table.columns import Column, NumberColumn
from hogbatch.data.table.encoder import Block, StoredByField
from hogbatch.data.table.kinds import Kind

QUANTILES: Final = 101
UNIFORM_DEVIATION: Final = 12**-0.5  # of numbers spread evenly over [0, 1]


@dataclass(frozen=True, slots=True, eq=False)
class NumericEncoder(StoredByField):
    """A number as (x - mean) / scale, or as its place among the quantiles of the training rows.

    A missing value is 0, and sets an indicator if the training rows have missing values. If they
    have only one number, all numbers become 0.
    """

    kind: ClassVar[Kind] = "number"
    stored: ClassVar[int] = 1

    mean: float
    scale: float
    fill: float  # in place of a missing value, before scaling
    indicator: bool
    quantiles: NDArray[np.float64] | None = None  # ascending and distinct, at least two

    @property
    def width(self) -> int:
        """The number of features."""
        return 1 + self.indicator

    def validate(self, name: str) -> None:
        """ValueError, with `name`, for values that `fit` does not return."""
        expect(self.scale > 0, f"{name}.scale: expected a number above 0; got {self.scale}")
        if (places := self.quantiles) is not None:
            ascend = len(places) > 1 and (places[1:] > places[:-1]).all()
            finite = within(places, -FLOAT64_MAX, FLOAT64_MAX)
            expect(ascend and finite, f"{name}.quantiles: expected ascending numbers")

    @classmethod
    def fit(cls, column: Column, rows: RowNumbers, scaling: str) -> "NumericEncoder":
        """Fit the statistics; `scaling` is standard, max, none or quantile."""
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
        if scaling == "quantile":
            places = np.unique(np.quantile(present, np.linspace(0, 1, QUANTILES)))
            if len(places) > 1:
                return cls(0.5, UNIFORM_DEVIATION, mean, indicator, places)
        return cls(mean, deviation, mean, indicator)

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
        if self.quantiles is not None:
            places = np.linspace(0, 1, len(self.quantiles))
            cells = np.interp(cells, self.quantiles, places)
        cells -= self.mean
        cells /= self.scale
        values = cells.astype(np.float32)
        features = np.zeros(len(rows), np.int32)
        if self.indicator:
            features[missing] = 1
            values[missing] = 1.0
        return Block(features[:, np.newaxis], values[:, np.newaxis])
