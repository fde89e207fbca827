"""Values over the course of a run, by its training seconds, in bounded memory."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from hogbatch.telemetry.trace import DIGITS, Trace

WINDOW_S: Final = 10.0  # training seconds over which a recent speed is measured


@dataclass(slots=True)
class Counter:
    """A number that only grows: its value, its course, and how fast it grows at present.

    Speeds are per training second, over about the last WINDOW_S of them.
    """

    value: int = 0
    course: Trace = field(default_factory=Trace)
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def set(self, value: int, seconds: float) -> None:
        """Set the value at training second `seconds`; the course is not kept."""
        self.value = value
        self._measure(seconds)

    def begin(self, seconds: float) -> None:
        """Measure speeds from training second `seconds` on."""
        self._recent.clear()
        self._recent.append((seconds, self.value))

    def add(self, amount: int, seconds: float) -> None:
        """Add `amount` at training second `seconds`."""
        self.value += amount
        self.course.add(seconds, self.value)
        self._measure(seconds)

    def _measure(self, seconds: float) -> None:
        self._recent.append((seconds, self.value))
        while len(self._recent) > 2 and self._recent[1][0] <= seconds - WINDOW_S:
            self._recent.popleft()

    def speed(self, now: float) -> float | None:
        """How fast it has grown, at training second `now`; None before anything was measured."""
        before = [point for point in self._recent if point[0] <= now - WINDOW_S]
        first = before[-1] if before else self._recent[0] if self._recent else (now, 0)
        elapsed = now - first[0]
        return (self.value - first[1]) / elapsed if elapsed > 0 else None

    def roll_back(self, seconds: float) -> None:
        """Restore the value of training second `seconds`, as far as the course has it."""
        keep_until(self.course, seconds)
        self.value = self.course.points[-1][1] if self.course.points else 0


def keep_until(trace: Trace, seconds: float) -> None:
    """Remove what a trace has after training second `seconds`."""
    last = round(seconds, DIGITS)  # as the trace rounds a change at this very moment
    trace.points = [point for point in trace.points if point[0] <= last]
