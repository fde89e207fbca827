"""Which rows are still to be done, and who has them."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

Rows = tuple[int, int]  # [start, stop)


@dataclass(slots=True)
class Ledger:
    """The rows [0, rows) of one pass: each is in `todo`, held under a lease, or acknowledged."""

    rows: int
    todo: deque[Rows] = field(default_factory=deque)
    held: dict[int, Rows] = field(default_factory=dict)  # lease → rows
    acknowledged: int = 0

    def __post_init__(self) -> None:
        if self.rows:
            self.todo.append((0, self.rows))

    @property
    def remaining(self) -> int:
        """Rows that nobody has."""
        return sum(stop - start for start, stop in self.todo)

    @property
    def finished(self) -> bool:
        """Whether every row is acknowledged."""
        return self.acknowledged == self.rows

    def take(self, lease: int, rows: int) -> Rows:
        """Hold the next `rows` rows, or fewer where a range ends, under `lease`."""
        start, stop = self.todo.popleft()
        cut = min(stop, start + rows)
        if cut < stop:
            self.todo.appendleft((cut, stop))
        self.held[lease] = (start, cut)
        return start, cut

    def acknowledge(self, lease: int, rows: int) -> Rows:
        """Strike the first `rows` rows of `lease` off; the rest goes to the head of the queue."""
        start, stop = self.held.pop(lease)
        done = start + rows
        self.acknowledged += rows
        if done < stop:
            self.todo.appendleft((done, stop))
        return start, done

    def give_back(self, lease: int) -> Rows:
        """Put the rows of `lease` at the head of the queue."""
        rows = self.held.pop(lease)
        self.todo.appendleft(rows)
        return rows

    def validate(self) -> None:
        """Check what must always hold: every row is in one place, and no range is empty."""
        ranges = sorted([*self.todo, *self.held.values()])
        assert all(start < stop for start, stop in ranges), ranges
        for (_, left_stop), (right_start, _) in pairwise(ranges):
            assert left_stop <= right_start, ranges
        assert sum(stop - start for start, stop in ranges) + self.acknowledged == self.rows
