"""A limit on the CPU time of redrawing the view."""

from dataclasses import dataclass
from typing import Final

INTERVAL_S: Final = 0.25  # between two frames
SHARE: Final = 0.005  # of one core
SAVED_S: Final = 0.02  # CPU seconds that may be spent at once after a time without frames


@dataclass(slots=True)
class RedrawBudget:
    """The CPU seconds that the view may use: SHARE of the time, and at first SAVED_S."""

    left: float = SAVED_S

    def pause(self, cost: float, elapsed: float) -> float:
        """Seconds until the next frame.

        `cost` are the CPU seconds of the last one, and `elapsed` the seconds since the one before.
        """
        self.left = min(SAVED_S, self.left + SHARE * elapsed) - cost
        return max(INTERVAL_S, -self.left / SHARE)
