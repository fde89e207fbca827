"""How much a change counts that others have overtaken: AdaSGD (Damaskinos et al. 2020, FLeet).

The staleness tau of a merge is the number of updates that others made to the shared parameters
between the pull that the change started from and the merge. A change of staleness tau is weighted
by e^(-beta tau).
"""

import math
from collections import deque

import numpy as np

PERCENTILE = 99.7  # of the staleness seen, as in AdaSGD: what lies beyond is a straggler
REMEMBERED = 1000  # merges
NEEDED = 20  # merges, before their staleness says what is usual


class Damping:
    """Weights of merges. `beta`: 0 gives all the same weight; None learns it from the staleness.

    A learned beta is the one for which half of the usual staleness t weighs 1 / (t/2 + 1):
    beta = 2/t ln(t/2 + 1), with t the 99.7th percentile of what was seen.
    """

    def __init__(self, beta: float | None) -> None:
        self._beta = beta
        self._seen: deque[int] = deque(maxlen=REMEMBERED)

    def share(self, staleness: int) -> float:
        """The weight of a change, 0 to 1; it is remembered for those that come."""
        beta = self._learned() if self._beta is None else self._beta
        self._seen.append(staleness)
        return math.exp(-beta * staleness)

    def _learned(self) -> float:
        if len(self._seen) < NEEDED:
            return 0.0
        usual = float(np.percentile(self._seen, PERCENTILE))
        return 2 / usual * math.log(usual / 2 + 1) if usual > 0 else 0.0
