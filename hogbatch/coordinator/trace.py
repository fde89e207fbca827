"""What a worker's figures were in the course of a run, in bounded memory."""

from dataclasses import dataclass, field

MAX_POINTS = 1000


@dataclass(slots=True)
class Trace:
    """(training seconds, value) at each change; once there are many, at even distances.

    A policy may change a batch a hundred times a second: all of that would fill the memory in days.
    """

    points: list[tuple[float, int]] = field(default_factory=list)
    _apart: float = 0.0  # seconds, at least, between two points

    def add(self, seconds: float, value: int) -> None:
        """`value` from `seconds` on."""
        point = (round(seconds, 4), value)
        if self.points and seconds - self.points[-1][0] < self._apart:
            self.points[-1] = (self.points[-1][0], value)
            return
        self.points.append(point)
        if len(self.points) > MAX_POINTS:
            self._thin()

    def _thin(self) -> None:
        """Keep about every second point."""
        span = self.points[-1][0] - self.points[0][0]
        self._apart = max(2 * self._apart, 2 * span / MAX_POINTS)
        kept, self.points = self.points, []
        for seconds, value in kept:
            if not self.points or seconds - self.points[-1][0] >= self._apart:
                self.points.append((seconds, value))
            else:
                self.points[-1] = (self.points[-1][0], value)
