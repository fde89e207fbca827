"""How the learning rate follows the batch size."""

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
    linear  s(r) = r: b rows in one update move the model as far as b / reference updates of
            `reference` rows each (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2).
    sqrt    s(r) = sqrt(r): keeps the variance of an update's noise, which falls with 1 / b
            (Krizhevsky 2014, "One weird trick for parallelizing CNNs", section 5).

    The cap is there because both rules break down beyond some batch size, where the curvature and
    no longer the noise limits the step (Goyal et al. see it beyond 8192 rows).
    """

    base: float
    scaling: str = "none"
    reference: int = 1  # rows of the batch for which `base` is meant
    cap: float = math.inf

    def at(self, batch_size: int) -> float:
        """The learning rate for one update from `batch_size` rows."""
        return self.base * min(self.cap, SCALINGS[self.scaling](batch_size / self.reference))
