"""The learning rate: its scaling with the batch size, and its schedule over the epochs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SCALINGS: Final[dict[str, Callable[[float], float]]] = {
    "none": lambda ratio: 1.0,
    "linear": lambda ratio: ratio,
    "sqrt": math.sqrt,
}

WARM_UP: Final = 0.1  # of the epochs of one-cycle


def _half_cosine(t: float, start: float = 0.0) -> float:
    """1 until t = `start`, then half a cosine to 0 at t = 1."""
    return 0.5 * (1.0 + math.cos(math.pi * max(0.0, t - start) / (1.0 - start)))


# The factor of the learning rate when the fraction t of a run is done.
SCHEDULES: Final[dict[str, Callable[[float], float]]] = {
    "constant": lambda t: 1.0,
    "cosine": _half_cosine,  # Loshchilov & Hutter 2017, "SGDR", without restarts
    "flat-cos": lambda t: _half_cosine(t, 0.5),
    # Smith & Topin 2018, "Super-Convergence"
    "one-cycle": lambda t: min(t / WARM_UP, _half_cosine(t, WARM_UP)),
    # Four cycles, each twice as long as the one before (Holzmüller et al. 2024, "Better by
    # Default", section 3)
    "coslog4": lambda t: 0.5 * (1.0 - math.cos(2.0 * math.pi * math.log2(1.0 + 15.0 * t))),
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
    schedule: str = "constant"
    epochs: int = 1  # of the whole run

    def at(self, batch_size: int, epoch: int = 0) -> float:
        """The learning rate for one update from `batch_size` rows in `epoch`, counted from 0.

        The fraction done is that in the middle of the epoch, for all of its rows, so that the rate
        does not depend on how they are divided into leases.
        """
        scaled = self.base * min(self.cap, SCALINGS[self.scaling](batch_size / self.reference))
        return scaled * SCHEDULES[self.schedule]((epoch + 0.5) / self.epochs)
