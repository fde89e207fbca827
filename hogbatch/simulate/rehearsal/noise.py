"""Random variation of simulated times."""

from dataclasses import dataclass
from random import Random

LEAST = 0.2  # of the usual time


@dataclass(frozen=True, slots=True)
class Noise:
    """Factors around 1 with the standard deviation `spread`.

    Without them, threads with equal batches would stay in step, unlike real threads.
    """

    rng: Random
    spread: float

    def factor(self, count: int = 1) -> float:
        """The next factor of the sum of `count` equal times."""
        return max(LEAST, self.rng.gauss(1.0, self.spread / count**0.5))
