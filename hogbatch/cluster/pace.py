"""How soon after a merge the models of several servers are merged again."""

import math
from dataclasses import dataclass

from hogbatch.cluster.settings import MergeSettings


@dataclass(slots=True)
class MergePace:
    """The times between merges; all times are seconds of the caller's clock."""

    seconds: float = 0.0  # that the last merge took
    busy_seconds: float = 0.0  # CPU seconds over threads, of the server with the most
    _began: float = -math.inf  # the last merge, or training after that
    _ended: float = -math.inf  # the last merge

    def begin(self, now: float) -> None:
        """A merge begins, or training from the same model on all servers."""
        self._began = now

    def end(self, seconds: float, busy_seconds: float, now: float) -> None:
        """The merge has ended, and took this long."""
        self.seconds, self.busy_seconds, self._ended = seconds, busy_seconds, now

    def earliest(self, settings: MergeSettings) -> float:
        """When the next merge may begin, so that merges take a limited part of time and threads."""
        pause = self.seconds * (1.0 / settings.share - 1.0)
        return self._ended + max(pause, self.busy_seconds / settings.load - self.seconds)

    def expected(self, settings: MergeSettings, rows_per_second: float) -> float:
        """When the servers have trained on the rows between two merges, at their measured speed.

        They report rows when leases end, which may take many times as long.
        """
        if not rows_per_second > 0.0:
            return math.inf
        return max(self.earliest(settings), self._began + settings.rows / rows_per_second)
