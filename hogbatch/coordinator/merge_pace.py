"""The settings of merges of several servers, and the time between two of them."""

import math
from dataclasses import dataclass
from typing import Final

LEASE_S: Final = 0.1  # of a server; it has two at a time
MERGES_PER_EPOCH: Final = 500  # at most, unless --merge-rows is given
RARE: Final = 3  # times the wanted rows between two merges: then merges may take more
# What a merge takes of one core, until one was measured: 26 ms with 9.4 million parameters.
SECONDS_PER_PARAMETER: Final = 2.8e-9


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The settings for merging the models of several servers."""

    rows: int  # of all servers between two merges, at least
    parameters: int  # of the model
    rule: str = "adasum"  # or "sum" or "average"; see hogbatch.coordinator.merge_rules
    share: float = 0.3  # largest fraction of the time in which a merge is under way
    load: float = 0.04  # largest fraction of the threads of a server that merges take ...
    load_if_rare: float = 0.1  # ... and if there are more than 3 times `rows` between two merges


ONE_MODEL: Final = MergeSettings(rows=1, parameters=0)  # of a run without servers


@dataclass(slots=True)
class MergePace:
    """The times between merges; all times are seconds of the caller's clock."""

    seconds: float = 0.0  # that the last merge took
    busy_seconds: float = 0.0  # CPU seconds over threads, of the server with the most
    _began: float = -math.inf  # the last merge, or training after that
    _ended: float = -math.inf  # the last merge, or a pause of training after that

    def train(self, now: float) -> None:
        """Training begins with the same model on all servers, or goes on after a pause with it.

        A merge at once would have nothing to add, so the pause between merges begins again.
        """
        self._began = self._ended = now

    def begin(self, now: float) -> None:
        self._began = now

    def end(self, seconds: float, busy_seconds: float, now: float) -> None:
        """The merge has ended, and took this long."""
        self.seconds, self.busy_seconds, self._ended = seconds, busy_seconds, now

    def earliest(self, settings: MergeSettings, rows: float) -> float:
        """When the next merge may begin, of `rows` that servers have trained on since the last one.

        Merges take a limited part of the time, and of the time of the threads.
        """
        load = settings.load_if_rare if rows >= RARE * settings.rows else settings.load
        seconds, busy = self.seconds, self.busy_seconds
        if not seconds:  # the first merge; at once, it would have nothing to add
            seconds = busy = SECONDS_PER_PARAMETER * settings.parameters
        pause = seconds * (1.0 / settings.share - 1.0)
        return self._ended + max(pause, busy / load - seconds)

    def expected(self, settings: MergeSettings, rows_per_second: float) -> float:
        """When the next merge may begin, at the measured speed of the servers.

        They report rows when leases end, which may take many times as long.
        """
        if not rows_per_second > 0.0:
            return math.inf
        return min(
            max(self.earliest(settings, rows), self._began + rows / rows_per_second)
            for rows in (settings.rows, RARE * settings.rows)
        )
