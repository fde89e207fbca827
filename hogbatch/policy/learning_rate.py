"""Scaling of the learning rate with the batch size."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SCALINGS: Final[dict[str, Callable[[float], float]]] = {
    "none": lambda ratio: 1.0,
    "linear": lambda ratio: ratio,
    "sqrt": math.sqrt,
}


@dataclass(frozen=True, slots=True)
class LearningRate:
    """base * min(cap, s(b / reference)) for a batch of b rows, above and below the reference.

    none    s = 1.
    linear  s(r) = r: one update from b rows moves the model as far as b / reference updates of
            `reference` rows each (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2).
    sqrt    s(r) = sqrt(r): keeps the variance of an update's noise constant, which falls as 1 / b
            (Krizhevsky 2014, "One weird trick for parallelizing CNNs", section 5).

    The cap exists because both rules break down beyond some batch size, where the curvature limits
    the step instead of the noise (Goyal et al. observe this beyond 8192 rows).
    """

    base: float
    scaling: str = "none"
    reference: int = 1  # batch size, in rows, at which the rate is `base`
    cap: float = math.inf

    def at(self, batch_size: int) -> float:
        """The learning rate for one update from `batch_size` rows."""
        return self.base * min(self.cap, SCALINGS[self.scaling](batch_size / self.reference))
