"""Which rows of a pass are still to be done, and which lease holds them."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

MANY_ROWS: Final = 1 << 40  # more than any pass has

Rows = tuple[int, int]  # [start, stop)


class RowRange(NamedTuple):
    """Rows [start, stop), and the number of workers that have died on some of them."""

    start: int
    stop: int
    deaths: int = 0

    @property
    def rows(self) -> Rows:
        """Start and stop, without the deaths."""
        return self.start, self.stop


@dataclass(slots=True)
class Ledger:
    """The rows [0, rows) of one pass: each is in `todo`, held under a lease, or acknowledged.

    With several servers, rows that a server has trained on are in `unmerged` before they are
    acknowledged: until its model is merged, they are lost with the server.
    """

    rows: int
    todo: deque[RowRange] = field(default_factory=deque)
    held: dict[int, RowRange] = field(default_factory=dict)  # by lease
    acknowledged: int = 0
    remaining: int = 0  # rows in `todo`
    unmerged: dict[int, RowRange] = field(default_factory=dict)  # by lease
    grows: bool = False  # whether rows are added during the pass, by `extend`

    def __post_init__(self) -> None:
        if self.rows:
            self._return(RowRange(0, self.rows))

    @classmethod
    def resumed(cls, rows: int, todo: Iterable[RowRange]) -> "Ledger":
        """A pass over `rows` rows of which only `todo` are left."""
        ledger = cls(rows)
        ledger.todo = deque(todo)
        ledger.remaining = sum(each.stop - each.start for each in ledger.todo)
        ledger.acknowledged = rows - ledger.remaining
        return ledger

    @property
    def finished(self) -> bool:
        """Whether every row is acknowledged."""
        return self.acknowledged == self.rows

    @property
    def deaths(self) -> int:
        """Number of workers that died on the next rows of the queue; 0 if it is empty."""
        return self.todo[0].deaths if self.todo else 0

    @property
    def unfinished(self) -> list[RowRange]:
        """All rows that are not acknowledged: those trained on or held, then those in the queue."""
        return [*self.unmerged.values(), *self.held.values(), *self.todo]

    @property
    def unmerged_rows(self) -> int:
        """Rows that are trained on but not merged."""
        return sum(each.stop - each.start for each in self.unmerged.values())

    @property
    def ahead(self) -> int:
        """Rows in the queue, as far as is known: many if rows are added."""
        return MANY_ROWS if self.grows else self.remaining

    def extend(self, start: int, stop: int) -> None:
        """Add the rows [start, stop), which are not in this pass yet, to the end of the queue."""
        self.rows += stop - start
        self.remaining += stop - start
        self.todo.append(RowRange(start, stop))

    def take(self, lease: int, rows: int) -> Rows:
        """Hold the next `rows` rows, or fewer where a range ends, under `lease`."""
        start, stop, deaths = self.todo.popleft()
        cut = min(stop, start + rows)
        if cut < stop:
            self.todo.appendleft(RowRange(cut, stop, deaths))
        self.held[lease] = RowRange(start, cut, deaths)
        self.remaining -= cut - start
        return start, cut

    def acknowledge(self, lease: int, rows: int) -> Rows:
        """Mark the first `rows` rows of `lease` as done; the rest goes to the head of the queue."""
        start, stop, deaths = self.held.pop(lease)
        done = start + rows
        self.acknowledged += rows
        if done < stop:
            self._return(RowRange(done, stop, deaths))
        return start, done

    def keep_unmerged(self, lease: int, rows: int) -> Rows:
        """As `acknowledge`, but the rows are acknowledged only when they are merged."""
        deaths = self.held[lease].deaths
        start, done = self.acknowledge(lease, rows)
        if rows:
            self.acknowledged -= rows
            self.unmerged[lease] = RowRange(start, done, deaths)
        return start, done

    def merge(self, leases: Iterable[int]) -> int:
        """Acknowledge the unmerged rows of `leases`; return their number."""
        merged = sum(each.stop - each.start for each in self._unmerged(leases))
        self.acknowledged += merged
        return merged

    def discard(self, leases: Iterable[int]) -> list[Rows]:
        """Return the unmerged rows of `leases` to the head of the queue; return which they are."""
        discarded = self._unmerged(leases)
        for each in reversed(discarded):
            self._return(each)
        return [each.rows for each in discarded]

    def _unmerged(self, leases: Iterable[int]) -> list[RowRange]:
        """Remove the rows of `leases` from those unmerged; leases without rows there are left out.

        Rows of leases of an earlier pass are merged, because that pass has ended.
        """
        return [self.unmerged.pop(lease) for lease in leases if lease in self.unmerged]

    def take_back(self, lease: int, died: bool = False) -> RowRange:
        """Return the rows of `lease` to the head of the queue; `died`: count a death on them."""
        start, stop, deaths = self.held.pop(lease)
        returned = RowRange(start, stop, deaths + died)
        self._return(returned)
        return returned

    def _return(self, rows: RowRange) -> None:
        self.todo.appendleft(rows)
        self.remaining += rows.stop - rows.start

    def validate(self) -> None:
        """Assert the invariants: every row is in one place, and no range is empty."""
        ranges = sorted(self.unfinished)
        assert self.remaining == sum(each.stop - each.start for each in self.todo)
        assert all(each.start < each.stop for each in ranges), ranges
        for left, right in pairwise(ranges):
            assert left.stop <= right.start, ranges
        assert sum(each.stop - each.start for each in ranges) + self.acknowledged == self.rows
