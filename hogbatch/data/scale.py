"""Scaling of features with statistics of the training rows, and conversion to float32.

All computations are in float64: a column of Unix seconds or years loses its significant digits in
float32 unless its mean is subtracted first.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.learning import SCALES, TABLE_SCALES
from hogbatch.data import csr
from hogbatch.data.batch import Inputs, RawInputs, dense_inputs
from hogbatch.data.order import RowNumbers
from hogbatch.data.schema import FLOAT64_MAX, TO_ZERO, expect, within
from hogbatch.errors import UsageError
from hogbatch.machine.budget import require
from hogbatch.machine.printable import plural

BLOCK_VALUES = 1 << 20  # values that are scaled at a time, 8 MiB
STATISTICS_BYTES: Final = 64  # of memory for each sparse feature, while statistics are computed
FEWER_FEATURES: Final = "use fewer features"

# "auto" does not scale a dense column if its values are within [-1, 1], the largest |value| is at
# least MIN_LARGEST and the range is at least MIN_SPAN of that (indicators, fractions, pixels
# divided by 255), ...
MIN_LARGEST: Final = 0.01
MIN_SPAN: Final = 0.5
# ... or if it is already standardised: |mean| at most MAX_CENTRED_MEAN and deviation in
# UNIT_DEVIATION.
MAX_CENTRED_MEAN: Final = 0.5
UNIT_DEVIATION: Final = (0.5, 2.0)
# Sparse features are not scaled if the largest |value| of each is in this range (indicators,
# TF-IDF, small counts).
SPARSE_RANGE: Final = (0.001, 10.0)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scaler:
    """Maps x to (x - mean) / scale.

    The mean is 0 if fitted on sparse inputs or on largest values, because centred inputs would no
    longer be sparse.
    """

    mean: Floats  # [F]
    scale: Floats  # [F], TO_ZERO for a constant column

    def validate(self) -> None:
        """ValueError unless all numbers are finite, and above 0 where they divide."""
        expect(within(self.mean, -FLOAT64_MAX, FLOAT64_MAX), "scaler.mean: expected finite numbers")
        usual = within(self.scale, math.ulp(0.0), FLOAT64_MAX)
        expect(usual, "scaler.scale: expected finite numbers above 0")


class ColumnStatistics(NamedTuple):
    """Statistics of F columns over the training rows; zeros of sparse columns are included."""

    mean: Floats
    deviation: Floats  # exactly 0 for a constant column
    low: Floats
    high: Floats

    @property
    def largest(self) -> Floats:
        """The largest |value|."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def of_channels(self, channels: int) -> "ColumnStatistics":
        """The statistics of all values of the channel that a column belongs to.

        The columns are the cells of pictures, with the channels of a cell beside each other.
        """
        mean, deviation, low, high = (each.reshape(-1, channels) for each in self)
        centre = mean.mean(axis=0)
        spread = np.sqrt((deviation**2 + (mean - centre) ** 2).mean(axis=0))
        found = centre, spread, low.min(axis=0), high.max(axis=0)
        return ColumnStatistics(*(np.tile(each, len(mean)) for each in found))


class ColumnMoments(NamedTuple):
    """Statistics of F columns over some rows, which can be merged with those of other rows."""

    rows: int  # N
    mean: Floats
    squares: Floats  # sums of the squared differences from the mean
    low: Floats
    high: Floats

    @classmethod
    def of(cls, inputs: RawInputs, features: int, rows: RowNumbers | None = None) -> Self:
        """The moments of `rows` (at least one; None: all rows), with F = `features`."""
        if not len(inputs.indptr):
            return reduce(cls.merged, (cls._of_block(block) for _, block in _blocks(inputs, rows)))
        _, indptr, indices, values = csr.rows(inputs, rows)  # those that are not stored are 0
        count, stored = len(indptr) - 1, np.bincount(indices, minlength=features)
        mean = np.bincount(indices, values, features) / count
        distances = (values - mean[indices]) ** 2
        squares = np.bincount(indices, distances, features) + (count - stored) * mean**2
        low = np.where(stored < count, 0.0, np.inf)
        high = np.where(stored < count, 0.0, -np.inf)
        np.minimum.at(low, indices, values)
        np.maximum.at(high, indices, values)
        return cls(count, mean, squares, low, high)

    @classmethod
    def _of_block(cls, block: Floats) -> Self:
        mean, low, high = block.mean(axis=0), block.min(axis=0), block.max(axis=0)
        block = block - mean
        return cls(len(block), mean, np.einsum("nf,nf->f", block, block), low, high)

    def merged(self, other: Self) -> Self:
        """The moments of the rows of both (Chan, Golub & LeVeque 1983)."""
        rows, difference = self.rows + other.rows, other.mean - self.mean
        between = difference**2 * (self.rows * other.rows / rows)
        return self._replace(
            rows=rows,
            mean=self.mean + difference * (other.rows / rows),
            squares=self.squares + (other.squares + between),
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
        )

    @property
    def statistics(self) -> ColumnStatistics:
        """Columns that differ only by rounding are constant: 0.1 + 0.2 and 0.3."""
        low, high = self.low, self.high
        rounding = 8 * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.abs(high))
        constant = high - low <= rounding
        deviation = np.where(constant, 0.0, np.sqrt(self.squares / self.rows))
        return ColumnStatistics(np.where(constant, low, self.mean), deviation, low, high)

    def mean_square(self, scaler: Scaler | None) -> float:
        """Mean over the rows of the squared norm of their columns, scaled by `scaler`."""
        mean, scale = (0.0, 1.0) if scaler is None else (scaler.mean, scaler.scale)
        squares = self.squares / self.rows + (self.mean - mean) ** 2
        return float((squares / scale / scale).sum())


def scaled(inputs: RawInputs, scaler: Scaler | None, rows: RowNumbers | None = None) -> Inputs:
    """All rows of `inputs`, or `rows` in that order, scaled and in float32 for kernels.

    Not copied if nothing changes. `inputs` have the features on which `scaler` was fitted. Sparse
    ones stay sparse unless its mean was fitted on dense inputs. Values beyond the range of float32
    become infinite.
    """
    if scaler is None and rows is None and isinstance(inputs, Inputs) and not len(inputs.indptr):
        return inputs
    if not len(inputs.indptr):
        return dense_inputs(_to_float32(inputs, rows, scaler))
    if scaler is not None and scaler.mean.any():
        return scaled(csr.to_dense(inputs, len(scaler.mean)), scaler, rows)
    own = csr.to_csr(csr.rows(inputs, rows))
    if scaler is None:
        return own
    with np.errstate(over="ignore"):  # kernels skip and count non-finite rows
        values = (own.values / scaler.scale[own.indices]).astype(np.float32)
    return own._replace(values=values)


def fit(
    setting: str,
    inputs: RawInputs,
    features: int,
    rows: RowNumbers | None = None,
    *,
    drop_constant: bool = True,
    channels: int | None = None,
) -> tuple[Scaler | None, str | None]:
    """Fit a scaler on the training `rows` (at least one; None: all rows).

    standard: mean 0 and deviation 1; only deviation 1 for sparse inputs. max: each column is
    divided by its largest |value|. auto: standard for dense and max for sparse inputs, but no
    scaling if all columns are in range already. With `drop_constant`, columns with one value in all
    `rows` become 0: nothing can be learned about other values. With `channels`, dense rows are
    pictures, whose channels are scaled instead of the columns. Also returns a sentence for the
    user, None if nothing changes. UsageError for any other setting.
    """
    if not len(inputs.indptr):
        statistics = ColumnMoments.of(inputs, features, rows).statistics
        if channels is not None:
            statistics = statistics.of_channels(channels)
        return scaler_for(setting, statistics, sparse=False, drop_constant=drop_constant)
    stored = csr.to_csr(csr.rows(inputs, rows))
    occurring = None
    if features > len(stored.indices):  # statistics of the features that occur need less memory
        occurring, indices = np.unique(stored.indices, return_inverse=True)
        stored = stored._replace(indices=indices.astype(np.int32))
    count = features if occurring is None else len(occurring)
    require(STATISTICS_BYTES * count, f"the statistics of {count:,} features", FEWER_FEATURES)
    statistics = ColumnMoments.of(stored, count).statistics
    scaler, note = scaler_for(setting, statistics, sparse=True, drop_constant=drop_constant)
    if scaler is None or occurring is None:
        return scaler, note
    require(
        16 * features, f"the scaling of {features:,} features", f"{FEWER_FEATURES}, or --scale none"
    )
    scale = np.ones(features)
    scale[occurring] = scaler.scale
    return Scaler(np.zeros(features), scale), note


def scaler_for(
    setting: str, statistics: ColumnStatistics, *, sparse: bool, drop_constant: bool = True
) -> tuple[Scaler | None, str | None]:
    """The scaler of columns with these statistics and the sentence for the user, as in `fit`."""
    if setting not in SCALES:
        raise UsageError(f"scale must be one of {', '.join(SCALES)}; got {setting!r}")
    if setting in TABLE_SCALES:
        raise UsageError(f"--scale {setting} needs a table: a CSV, Parquet, Arrow or Feather file")
    features, form = len(statistics.mean), "sparse" if sparse else "dense"
    mean, scale, notes = np.zeros(features), np.ones(features), list[str]()
    if setting == "auto":
        in_scale = (_sparse_in_scale if sparse else _dense_in_scale)(statistics).all()
        setting = "none" if in_scale else "max" if sparse else "standard"
    if setting == "max":
        scale = np.where(statistics.largest > 0, statistics.largest, 1.0)
        what = "divided by their largest |value|"
    elif setting == "standard":
        mean = mean if sparse else statistics.mean
        scale = np.where(statistics.deviation > 0, statistics.deviation, 1.0)
        what = "scaled to deviation 1" if sparse else "scaled to mean 0, deviation 1"
    if setting != "none":
        notes.append(f"{form} features {what} (--scale none turns this off)")
    constant = statistics.deviation == 0
    if sparse:  # features that no row has need no scale: their initial weights are 0
        constant &= statistics.largest > 0
    if drop_constant and constant.any():
        scale[constant] = TO_ZERO
        count = plural(int(np.count_nonzero(constant)), "feature")
        notes.append(f"not used, constant in the training rows: {count}")
    return (Scaler(mean, scale) if notes else None), "; ".join(notes) or None


def _dense_in_scale(statistics: ColumnStatistics) -> NDArray[np.bool_]:
    largest, span = statistics.largest, statistics.high - statistics.low
    bounded = (largest <= 1) & (largest >= MIN_LARGEST) & (span >= MIN_SPAN * largest)
    constant = (largest <= 1) & (statistics.deviation == 0)
    lowest, highest = UNIT_DEVIATION
    unit = (statistics.deviation >= lowest) & (statistics.deviation <= highest)
    standardized = unit & (np.abs(statistics.mean) <= MAX_CENTRED_MEAN)
    in_scale: NDArray[np.bool_] = bounded | constant | standardized
    return in_scale


def _sparse_in_scale(statistics: ColumnStatistics) -> NDArray[np.bool_]:
    lowest, highest = SPARSE_RANGE
    within = (statistics.largest >= lowest) & (statistics.largest <= highest)
    # 0: the feature does not occur.
    in_scale: NDArray[np.bool_] = within | (statistics.largest == 0)
    return in_scale


def _blocks(
    inputs: RawInputs, rows: RowNumbers | None
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield blocks of dense rows in float64, each with its slice of `rows`."""
    size = max(1, BLOCK_VALUES // max(inputs.dense.shape[1], 1))
    for start in range(0, len(inputs.dense) if rows is None else len(rows), size):
        part = slice(start, start + size)
        block = inputs.dense[part] if rows is None else inputs.dense[rows[part]]
        yield part, block.astype(np.float64, copy=False)


def _to_float32(
    inputs: RawInputs, rows: RowNumbers | None, scaler: Scaler | None
) -> NDArray[np.float32]:
    """Scale dense rows in float64 block by block, without a float64 copy of all rows."""
    count = len(inputs.dense) if rows is None else len(rows)
    out = np.empty((count, inputs.dense.shape[1]), np.float32)
    with np.errstate(over="ignore"):
        for part, block in _blocks(inputs, rows):
            out[part] = block if scaler is None else (block - scaler.mean) / scaler.scale
    return out
