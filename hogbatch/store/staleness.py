"""Weights of stale changes.

The staleness tau of a merge is the number of updates by other workers between the pull that the
change is based on and the merge. At full weight, a stale change repeats the updates of the other
workers, and the model overshoots.
"""

import math
from collections import deque

import numpy as np

PERCENTILE = 99.7  # of the observed staleness, as in AdaSGD; larger values are stragglers
HISTORY = 1000  # merges whose staleness is kept
DAMPING_SCALE = 1 / 300  # change of a weight by others that halves a stale change of it
MIN_HISTORY = 20  # minimum number of merges for the percentile


class Damping:
    """Weights of merges, by `rule`:

    root   1 / sqrt(1 + tau)
    BETA   e^(-BETA tau), AdaSGD (Damaskinos et al. 2020, FLeet)
    auto   the same with the BETA for which a staleness of t/2 has the weight 1 / (t/2 + 1):
           2/t ln(t/2 + 1), where t is the 99.7th percentile of the observed staleness
    off    1
    per-weight
           s / (s + abs(d)) for each weight of the model, where d is its change by others since the
           pull, and s is DAMPING_SCALE. The replica computes it when it merges. Where only touched
           rows of a sparse layer are exchanged, as root.
    """

    def __init__(self, rule: float | str) -> None:
        self._rule = rule
        self._seen: deque[int] = deque(maxlen=HISTORY)

    def weight(self, staleness: int) -> float:
        """The weight of a change, 0 to 1; records its staleness for later merges."""
        weight = self._weight(staleness)
        self._seen.append(staleness)
        return weight

    def _weight(self, staleness: int) -> float:
        match self._rule:
            case "root" | "per-weight":
                return 1 / math.sqrt(1 + staleness)
            case "auto":
                return math.exp(-self._learned_beta() * staleness)
            case float(beta):
                return math.exp(-beta * staleness)
        return 1.0

    def _learned_beta(self) -> float:
        if len(self._seen) < MIN_HISTORY:
            return 0.0
        usual = float(np.percentile(self._seen, PERCENTILE))
        return 2 / usual * math.log(usual / 2 + 1) if usual > 0 else 0.0
