"""Features brought to one scale, and to float32, as the training rows tell.

Everything is computed in float64: a column of Unix seconds or of years loses what matters in
float32, unless its mean is subtracted first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.train import SCALES
from hogbatch.data import csr
from hogbatch.data.batch import DoubleInputs, Inputs, RawInputs, csr_inputs, dense_inputs
from hogbatch.errors import UsageError

BLOCK = 1 << 20  # values of a block that is scaled at once, 8 MiB

# A dense column is left alone by "auto" if it lies within [-1, 1], has a value of at least SMALLEST
# and spans at least SPAN of its largest |value| (indicators, shares, pixels divided by 255), ...
SMALLEST: Final = 0.01
SPAN: Final = 0.5
# ... or if it has been standardised already: |mean| at most CENTRED, a deviation between these.
CENTRED: Final = 0.5
UNIT: Final = (0.5, 2.0)
# Sparse features are left alone if the largest |value| of each lies between these (indicators,
# TF-IDF, small counts).
SPARSE: Final = (0.001, 10.0)

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scaler:
    """x becomes (x - mean) / scale.

    Fitted on sparse inputs, or on largest values, it does not centre (mean is 0): centred inputs
    would no longer be sparse.
    """

    mean: Floats  # [F]
    scale: Floats  # [F], 1 for a column that never changes

    def apply(self, inputs: RawInputs, rows: Rows | None = None) -> Inputs:
        """Scale all rows of `inputs`, or `rows` in that order; `inputs` stay as they are.

        Their features are those that were fitted. Sparse inputs stay sparse, unless the mean was
        fitted on dense ones. What does not fit into float32 becomes infinite.
        """
        if not len(inputs.indptr):
            return dense_inputs(_to_float32(inputs, rows, self))
        if self.mean.any():
            return self.apply(csr.to_dense(inputs, len(self.mean)), rows)
        indptr, indices, values = _stored(inputs, rows)
        with np.errstate(over="ignore"):  # kernels skip rows that are not finite, and count them
            scaled = (values / self.scale[indices]).astype(np.float32)
        return csr_inputs(indptr, indices, scaled)


class Columns(NamedTuple):
    """What the training rows tell of each of F columns; of sparse ones, zeros are included."""

    mean: Floats
    deviation: Floats  # exactly 0 for a column that never changes
    low: Floats
    high: Floats

    @property
    def largest(self) -> Floats:
        """The largest |value|."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def scaled(inputs: RawInputs, scaler: Scaler | None, rows: Rows | None = None) -> Inputs:
    """All rows of `inputs`, or `rows` in that order, as kernels take them.

    Not copied if there is nothing to do.
    """
    if scaler is not None:
        return scaler.apply(inputs, rows)
    if len(inputs.indptr):
        return csr_inputs(*_stored(inputs, rows))
    if rows is None and not isinstance(inputs, DoubleInputs):
        return inputs
    return dense_inputs(_to_float32(inputs, rows, None))


def fit(
    setting: str, inputs: RawInputs, features: int, rows: Rows | None = None
) -> tuple[Scaler | None, str]:
    """Decide how features are scaled, from the training rows (at least one; None: all of them).

    standard: mean 0 and deviation 1, of sparse inputs the deviation alone. max: each column divided
    by its largest |value|. auto: standard for dense and max for sparse inputs, but none if they are
    in scale already. Returns a sentence for the user beside it, empty if "auto" leaves them as they
    are. UsageError for any other setting.
    """
    if setting not in SCALES:
        raise UsageError(f"scale must be one of {', '.join(SCALES)}; got {setting!r}")
    if setting == "none":
        return None, ""
    sparse = len(inputs.indptr) > 0
    columns = _sparse_columns(inputs, features, rows) if sparse else _dense_columns(inputs, rows)
    if setting == "auto":
        if (_sparse_in_scale if sparse else _dense_in_scale)(columns).all():
            return None, ""
        setting = "max" if sparse else "standard"
    form = "sparse" if sparse else "dense"
    if setting == "max":
        scaler = Scaler(np.zeros(features), np.where(columns.largest > 0, columns.largest, 1.0))
        what = "divided by their largest |value|"
    else:
        mean = np.zeros(features) if sparse else columns.mean
        scaler = Scaler(mean, np.where(columns.deviation > 0, columns.deviation, 1.0))
        what = "scaled to deviation 1" if sparse else "scaled to mean 0, deviation 1"
    return scaler, f"{form} features {what} (--scale none turns this off)"


def _dense_in_scale(columns: Columns) -> NDArray[np.bool_]:
    largest, span = columns.largest, columns.high - columns.low
    bounded = (largest <= 1) & (largest >= SMALLEST) & (span >= SPAN * largest)
    constant = (largest <= 1) & (columns.deviation == 0)
    lowest, highest = UNIT
    unit = (columns.deviation >= lowest) & (columns.deviation <= highest)
    standardized = unit & (np.abs(columns.mean) <= CENTRED)
    fine: NDArray[np.bool_] = bounded | constant | standardized
    return fine


def _sparse_in_scale(columns: Columns) -> NDArray[np.bool_]:
    lowest, highest = SPARSE
    within = (columns.largest >= lowest) & (columns.largest <= highest)
    fine: NDArray[np.bool_] = within | (columns.largest == 0)  # 0: the feature does not occur
    return fine


def _stored(
    inputs: RawInputs, rows: Rows | None
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """The CSR arrays of `rows` (not copied for all)."""
    if rows is None:
        return inputs.indptr, inputs.indices, inputs.values
    indptr, positions = csr.positions(inputs.indptr, rows)
    return indptr, inputs.indices[positions], inputs.values[positions]


def _blocks(inputs: RawInputs, rows: Rows | None) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Blocks of dense rows in float64, each with its place among `rows`."""
    size = max(1, BLOCK // max(inputs.dense.shape[1], 1))
    for start in range(0, len(inputs.dense) if rows is None else len(rows), size):
        place = slice(start, start + size)
        block = inputs.dense[place] if rows is None else inputs.dense[rows[place]]
        yield place, block.astype(np.float64, copy=False)


def _to_float32(inputs: RawInputs, rows: Rows | None, scaler: Scaler | None) -> NDArray[np.float32]:
    """Dense rows, scaled in float64 block by block: without a float64 copy of all of them."""
    count = len(inputs.dense) if rows is None else len(rows)
    out = np.empty((count, inputs.dense.shape[1]), np.float32)
    with np.errstate(over="ignore"):
        for place, block in _blocks(inputs, rows):
            out[place] = block if scaler is None else (block - scaler.mean) / scaler.scale
    return out


def _dense_columns(inputs: RawInputs, rows: Rows | None) -> Columns:
    """Moments in one pass, block added to block (Chan, Golub & LeVeque 1983)."""
    features = inputs.dense.shape[1]
    count, mean, squares = 0, np.zeros(features), np.zeros(features)
    low, high = np.full(features, np.inf), np.full(features, -np.inf)
    for _, block in _blocks(inputs, rows):
        n, own = len(block), block.mean(axis=0)
        np.minimum(low, block.min(axis=0), out=low)
        np.maximum(high, block.max(axis=0), out=high)
        apart = own - mean
        block = block - own
        squares += np.einsum("nf,nf->f", block, block) + apart**2 * (count * n / (count + n))
        count += n
        mean += apart * (n / count)
    return _columns(mean, squares / count, low, high)


def _sparse_columns(inputs: RawInputs, features: int, rows: Rows | None) -> Columns:
    indptr, indices, values = _stored(inputs, rows)
    count, stored = len(indptr) - 1, np.bincount(indices, minlength=features)
    mean = np.bincount(indices, values, features) / count
    distances = (values - mean[indices]) ** 2
    squares = np.bincount(indices, distances, features) + (count - stored) * mean**2
    low = np.where(stored < count, 0.0, np.inf)
    high = np.where(stored < count, 0.0, -np.inf)
    np.minimum.at(low, indices, values)
    np.maximum.at(high, indices, values)
    return _columns(mean, squares / count, low, high)


def _columns(mean: Floats, variance: Floats, low: Floats, high: Floats) -> Columns:
    """A column that differs by rounding alone never changes: 0.1 + 0.2 beside 0.3."""
    rounding = 8 * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.abs(high))
    constant = high - low <= rounding
    return Columns(
        np.where(constant, low, mean), np.where(constant, 0.0, np.sqrt(variance)), low, high
    )
