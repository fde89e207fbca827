"""A value of one worker over the course of a run, in bounded memory."""

from dataclasses import dataclass, field

MAX_POINTS = 1000
DIGITS = 4  # of the training seconds of a point, after the decimal point


@dataclass(slots=True)
class Trace:
    """(training seconds, value) at each change, thinned to even intervals when there are many.

    A policy may change a batch size a hundred times a second, which would fill memory within days.
    """

    points: list[tuple[float, int]] = field(default_factory=list)
    _min_distance: float = 0.0  # seconds between two points

    def add(self, seconds: float, value: int) -> None:
        """Add a change to `value` at training second `seconds`."""
        point = (round(seconds, DIGITS), value)
        if self.points and seconds - self.points[-1][0] < self._min_distance:
            self.points[-1] = (self.points[-1][0], value)
            return
        self.points.append(point)
        if len(self.points) > MAX_POINTS:
            self._thin()

    def _thin(self) -> None:
        """Drop about every second point."""
        span = self.points[-1][0] - self.points[0][0]
        self._min_distance = max(2 * self._min_distance, 2 * span / MAX_POINTS)
        kept, self.points = self.points, []
        for seconds, value in kept:
            if not self.points or seconds - self.points[-1][0] >= self._min_distance:
                self.points.append((seconds, value))
            else:
                self.points[-1] = (self.points[-1][0], value)
