"""What happens when: a clock that jumps from one event to the next."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Act = Callable[[], None]


@dataclass(slots=True)
class EventQueue:
    """Events in the order of their times, in seconds; those of one time in the order they came."""

    now: float = 0.0
    _events: list[tuple[float, int, Act]] = field(default_factory=list)
    _entered: int = 0

    def at(self, time: float, act: Act) -> None:
        """Do `act` at `time`, or at once if that has passed."""
        self._entered += 1
        heapq.heappush(self._events, (max(time, self.now), self._entered, act))

    def after(self, seconds: float, act: Act) -> None:
        """Do `act` in some `seconds`."""
        self.at(self.now + seconds, act)

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        if not self._events:
            return False
        self.now, _, act = heapq.heappop(self._events)
        act()
        return True
