"""How much a change counts that others have overtaken.

The staleness tau of a merge is the number of updates that others made to the shared parameters
between the pull that the change started from and the merge. At full weight such a change repeats
what the others have done meanwhile, and the model overshoots.
"""

import math
from collections import deque

import numpy as np

PERCENTILE = 99.7  # of the staleness seen, as in AdaSGD: what lies beyond is a straggler
REMEMBERED = 1000  # merges
NEEDED = 20  # merges, before their staleness says what is usual


class Damping:
    """Weights of merges, by `rule`:

    root   1 / sqrt(1 + tau)
    BETA   e^(-BETA tau), AdaSGD (Damaskinos et al. 2020, FLeet)
    auto   the same with the BETA for which half of the usual staleness t weighs 1 / (t/2 + 1):
           2/t ln(t/2 + 1), with t the 99.7th percentile of what was seen
    off    1
    """

    def __init__(self, rule: float | str) -> None:
        self._rule = rule
        self._seen: deque[int] = deque(maxlen=REMEMBERED)

    def fraction(self, staleness: int) -> float:
        """The weight of a change, 0 to 1; its staleness is remembered for those that come."""
        fraction = self._weight(staleness)
        self._seen.append(staleness)
        return fraction

    def _weight(self, staleness: int) -> float:
        match self._rule:
            case "root":
                return 1 / math.sqrt(1 + staleness)
            case "auto":
                return math.exp(-self._learned() * staleness)
            case float(beta):
                return math.exp(-beta * staleness)
        return 1.0

    def _learned(self) -> float:
        if len(self._seen) < NEEDED:
            return 0.0
        usual = float(np.percentile(self._seen, PERCENTILE))
        return 2 / usual * math.log(usual / 2 + 1) if usual > 0 else 0.0
