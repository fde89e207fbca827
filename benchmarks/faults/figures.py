"""Statistics of samples: medians and maxima, and the slope of a line with its error."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Slope(NamedTuple):
    """The slope of a line through points, per unit of x."""

    value: float
    error: float  # standard error


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float | int | None]:
    """Count, median, 95th percentile and maximum."""
    if not values:
        return {"count": 0, "median": None, "p95": None, "max": None}
    found = (statistics.median(values), float(np.quantile(values, 0.95)), max(values))
    rounded = dict(zip(("median", "p95", "max"), (round(x, digits) for x in found), strict=True))
    return {"count": len(values), **rounded}


def slope(x: ArrayLike, y: ArrayLike, blocks: int = 20) -> Slope:
    """Slope of y [N] over x [N], by least squares through the means of `blocks` blocks of points.

    Memory changes in steps, so neighbouring samples are correlated, and an error computed from all
    N points would be far too small. Means of long blocks are nearly independent (the method of
    batch means; Law & Carson 1979). ValueError for fewer points than blocks.
    """
    xs, ys = (_means(np.asarray(values, dtype=np.float64), blocks) for values in (x, y))
    centred = xs - xs.mean()
    spread_x = float(centred @ centred)
    value = float(centred @ ys) / spread_x
    residuals = ys - ys.mean() - value * centred
    return Slope(value, math.sqrt(float(residuals @ residuals) / (blocks - 2) / spread_x))


def _means(values: NDArray[np.float64], blocks: int) -> NDArray[np.float64]:
    if len(values) < blocks:
        raise ValueError(f"expected at least {blocks} points; got {len(values)}")
    return np.array([part.mean() for part in np.array_split(values, blocks)])
