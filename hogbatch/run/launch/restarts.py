"""Decides whether and when a worker that died is restarted; uses no clock and no processes.

A worker that has finished a lease since its last start is restarted immediately, because
the cause of its death may not recur. A worker that has not would probably die again: the pauses
before its restarts double, and after MAX_RESTARTS restarts it is not restarted any more. Neither is
a worker that has died more than MAX_RECENT times within RECENT_S, whether or not it has worked.
"""

from collections import deque
from dataclasses import dataclass, field

MAX_RESTARTS = 3  # without a finished lease
MAX_PAUSE_S = 32.0
MAX_RECENT = 30  # restarts within RECENT_S
RECENT_S = 600.0


@dataclass(slots=True)
class Restarts:
    """Deaths and restarts of one worker."""

    maximum: int = MAX_RESTARTS
    times: int = 0  # restarts since it last finished a lease
    deaths: int = 0  # since then
    # time of its next start; None: it is running, or will not be restarted
    due_at: float | None = None
    _first_death: float = 0.0  # since then
    _recent: deque[float] = field(default_factory=deque)  # times of deaths within RECENT_S

    def died(self, now: float, worked: bool) -> None:
        """The worker died at `now`; `worked`: it had finished a lease since its last start."""
        self._recent.append(now)
        while self._recent[0] < now - RECENT_S:
            self._recent.popleft()
        if worked:
            self.times = self.deaths = 0
        else:
            self._first_death = self._first_death if self.deaths else now
            self.deaths += 1
        if self.times < self.maximum and len(self._recent) <= MAX_RECENT:
            pause = 0.0 if worked else min(2.0 ** (self.deaths - 1), MAX_PAUSE_S)
            self.due_at = now + pause

    def is_due(self, now: float) -> bool:
        """Whether the worker must be started now."""
        return self.due_at is not None and now >= self.due_at

    def start(self) -> None:
        """Record that the worker is being started."""
        self.due_at = None
        self.times += 1

    @property
    def counted(self) -> tuple[int, int]:
        """Restarts that count towards the limit, and this limit.

        It is that of a worker that has not finished a lease, or that within RECENT_S.
        """
        return (self.times, self.maximum) if self.deaths else (len(self._recent), MAX_RECENT)

    def __str__(self) -> str:
        last = self._recent[-1]
        if len(self._recent) > MAX_RECENT:
            return f"{len(self._recent)} deaths in {last - self._recent[0]:.0f} s"
        deaths = "1 death" if self.deaths == 1 else f"{self.deaths} deaths"
        return f"{deaths} in {last - self._first_death:.0f} s without a finished lease"
