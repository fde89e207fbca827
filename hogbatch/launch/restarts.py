"""Whether a worker that died is started again, and when. It is told the time, and knows no process.

A worker that has finished a lease since its last start died of something that may not come again:
it is started at once. One that has not would most likely die again: the pauses before its next
starts double, and after a few in vain it is given up.
"""

from dataclasses import dataclass

MAX_RESTARTS = 3  # without a finished lease
LONGEST_PAUSE_S = 32.0


@dataclass(slots=True)
class Restarts:
    """Deaths and restarts of one worker since it last finished a lease."""

    most: int = MAX_RESTARTS
    times: int = 0  # restarts
    deaths: int = 0
    due_at: float | None = None  # when to start it again; None: it runs, or is given up
    _since: float = 0.0  # the first of the deaths
    _last: float = 0.0

    def died(self, now: float, worked: bool) -> None:
        """Take in a death at `now`; it had `worked` if it finished a lease since its last start."""
        if worked:
            self.times = self.deaths = 0
            self.due_at = now
            return
        self._since, self._last = (self._since if self.deaths else now), now
        self.deaths += 1
        if self.times < self.most:
            self.due_at = now + min(2.0 ** (self.deaths - 1), LONGEST_PAUSE_S)

    def is_due(self, now: float) -> bool:
        """Whether it is to be started now."""
        return self.due_at is not None and now >= self.due_at

    def start(self) -> None:
        """Take in that it is being started."""
        self.due_at = None
        self.times += 1

    def __str__(self) -> str:
        deaths = "1 death" if self.deaths == 1 else f"{self.deaths} deaths"
        return f"{deaths} in {self._last - self._since:.0f} s without one finished lease"
