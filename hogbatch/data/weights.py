"""Weights of rows: a row's weight multiplies its loss, and so its gradient and its metrics."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import NO_WEIGHTS
from hogbatch.data.order import RowNumbers
from hogbatch.errors import UsageError


def used_rows(weights: Any, rows: int) -> tuple[RowNumbers | None, NDArray[np.float64] | None]:
    """The rows with a weight above 0 (None: all), and their weights (None: equal).

    Rows of weight 0 count as absent: neither scaling nor the mean of the labels depends on them.
    """
    if weights is None:
        return None, None
    own = weights_of(weights, rows)
    kept = None if own.all() else np.flatnonzero(own)
    own = own if kept is None else own[kept]
    return kept, None if (own == own[0]).all() else own


def weights_of(values: Any, rows: int) -> NDArray[np.float64]:
    """The weights of `rows` rows: finite, not negative, not all 0; UsageError for others."""
    try:
        weights = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"sample_weight: expected numbers; {error}") from None
    if weights.shape != (rows,):
        raise UsageError(
            f"sample_weight: expected one number for each of {rows} rows; got shape {weights.shape}"
        )
    unusable = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(unusable):
        raise UsageError(
            "sample_weight: expected finite numbers of at least 0; got "
            f"{weights[unusable[0]]:g} in row {unusable[0]} (counted from 0)"
        )
    if not weights.any():
        raise UsageError("sample_weight: expected a weight above 0; got only zeros")
    return weights


def relative_weights(
    weights: NDArray[np.float64] | None, rows: RowNumbers | None
) -> NDArray[np.float32]:
    """`weights`[N] divided by their mean over `rows` (None: all), so that learning rates fit.

    [0] if there are none, as in `batch.Labels`.
    """
    if weights is None:
        return NO_WEIGHTS
    fractions = weights / weights.max()  # their sum cannot overflow
    mean = (fractions if rows is None else fractions[rows]).mean()
    relative: NDArray[np.float32] = (fractions / mean).astype(np.float32)
    return relative
