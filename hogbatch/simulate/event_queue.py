"""The simulated clock and the events scheduled on it."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Action = Callable[[], None]


@dataclass(slots=True)
class EventQueue:
    """Actions by time, in seconds; those of equal time run in the order of scheduling."""

    now: float = 0.0
    _events: list[tuple[float, int, Action]] = field(default_factory=list)
    _scheduled: int = 0

    def at(self, time: float, action: Action) -> None:
        """Schedule `action` at `time`, or now if that has passed."""
        self._scheduled += 1
        heapq.heappush(self._events, (max(time, self.now), self._scheduled, action))

    def after(self, seconds: float, action: Action) -> None:
        """Schedule `action` in `seconds`."""
        self.at(self.now + seconds, action)

    def step(self) -> bool:
        """Advance the clock to the next action and run it; False if there is none."""
        if not self._events:
            return False
        self.now, _, action = heapq.heappop(self._events)
        action()
        return True
