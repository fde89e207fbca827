"""The gradient noise scale of a run, estimated from what workers measure.

The noise scale is tr Σ / |G|², where G is the gradient, and Σ the covariance of the gradients of
single rows: with batches of that many rows, training needs about twice the rows that it needs with
small ones (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 1 / 2  # of the rows trained on so far: rows after which a measurement counts 1 / e
LEAST_WINDOW = 20_000  # rows
MOST_ERROR = 1 / 2  # of the estimate, with which it is known


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """The noise scale and its standard error, both in rows."""

    rows: float
    error: float


@dataclass(slots=True)
class NoiseEstimate:
    """Estimates the noise scale from measurements; older ones count less.

    S and P, sums over pairs of rows, are averaged separately, because a mean of their ratios would
    be too high: S estimates |G|² + tr Σ of as many pairs as P estimates |G|². The error is that of
    the ratio (the linearization of Cochran 1977, "Sampling Techniques", section 2.11).
    """

    _squares: float = 0.0  # S
    _products: float = 0.0  # P
    _variances: tuple[float, float, float] = 0.0, 0.0, 0.0  # of S, of S and P, of P
    _rows: int = 0  # trained on at the last measurement

    def add(self, sums: Sequence[float], rows: int) -> None:
        """Add S, P, and the variances of S, of S and P, and of P, after `rows` rows in all."""
        kept = math.exp(-max(0, rows - self._rows) / max(LEAST_WINDOW, WINDOW * rows))
        squares, products, *variances = sums
        self._rows = max(rows, self._rows)
        self._squares = kept * self._squares + squares
        self._products = kept * self._products + products
        pairs = zip(self._variances, variances, strict=True)
        of_s, of_both, of_p = (kept * kept * before + each for before, each in pairs)
        self._variances = of_s, of_both, of_p

    @property
    def scale(self) -> NoiseScale | None:
        """The estimate; None while it is not known within half of itself."""
        if self._products <= 0.0:
            return None
        ratio = self._squares / self._products  # of |G|² + tr Σ to |G|²
        of_s, of_both, of_p = self._variances
        variance = of_s - 2.0 * ratio * of_both + ratio * ratio * of_p
        error = math.sqrt(max(0.0, variance)) / self._products
        if not error <= MOST_ERROR * ratio < math.inf:  # False if one is not a number
            return None
        return NoiseScale(max(0.0, ratio - 1.0), error)
