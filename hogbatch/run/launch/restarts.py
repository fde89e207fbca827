"""Decides whether and when a worker that died is restarted; uses no clock and no processes.

A worker that has finished a lease since its last start is restarted immediately, because
the cause of its death may not recur. A worker that has not would probably die again: the pauses
before its restarts double, and after MAX_RESTARTS restarts it is not restarted any more.
"""

from dataclasses import dataclass

MAX_RESTARTS = 3  # without a finished lease
MAX_PAUSE_S = 32.0


@dataclass(slots=True)
class Restarts:
    """Deaths and restarts of one worker since it last finished a lease."""

    maximum: int = MAX_RESTARTS
    times: int = 0  # restarts
    deaths: int = 0
    due_at: float | None = (
        None  # time of its next start; None: it is running, or will not be restarted
    )
    _first_death: float = 0.0
    _last_death: float = 0.0

    def died(self, now: float, worked: bool) -> None:
        """The worker died at `now`; `worked`: it had finished a lease since its last start."""
        if worked:
            self.times = self.deaths = 0
            self.due_at = now
            return
        if not self.deaths:
            self._first_death = now
        self._last_death = now
        self.deaths += 1
        if self.times < self.maximum:
            self.due_at = now + min(2.0 ** (self.deaths - 1), MAX_PAUSE_S)

    def is_due(self, now: float) -> bool:
        """Whether the worker must be started now."""
        return self.due_at is not None and now >= self.due_at

    def start(self) -> None:
        """Record that the worker is being started."""
        self.due_at = None
        self.times += 1

    def __str__(self) -> str:
        deaths = "1 death" if self.deaths == 1 else f"{self.deaths} deaths"
        return f"{deaths} in {self._last_death - self._first_death:.0f} s without a finished lease"
