"""Which rows are still to be done, and who has them."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

Rows = tuple[int, int]  # [start, stop)


class Span(NamedTuple):
    """Rows [start, stop), on some of which so many workers have died."""

    start: int
    stop: int
    deaths: int = 0

    @property
    def rows(self) -> Rows:
        """Without the deaths."""
        return self.start, self.stop


@dataclass(slots=True)
class Ledger:
    """The rows [0, rows) of one pass: each is in `todo`, held under a lease, or acknowledged."""

    rows: int
    todo: deque[Span] = field(default_factory=deque)
    held: dict[int, Span] = field(default_factory=dict)  # by lease
    acknowledged: int = 0
    remaining: int = 0  # rows that nobody has

    def __post_init__(self) -> None:
        if self.rows:
            self._return(Span(0, self.rows))

    @classmethod
    def resumed(cls, rows: int, todo: Iterable[Span]) -> "Ledger":
        """A pass over `rows` rows of which only `todo` are left."""
        ledger = cls(rows)
        ledger.todo = deque(todo)
        ledger.remaining = sum(span.stop - span.start for span in ledger.todo)
        ledger.acknowledged = rows - ledger.remaining
        return ledger

    @property
    def finished(self) -> bool:
        """Whether every row is acknowledged."""
        return self.acknowledged == self.rows

    @property
    def deaths(self) -> int:
        """Workers that have died on the rows to be taken next; 0 without any."""
        return self.todo[0].deaths if self.todo else 0

    @property
    def unfinished(self) -> list[Span]:
        """What a pass that goes on from here would have to do."""
        return [*self.held.values(), *self.todo]

    def take(self, lease: int, rows: int) -> Rows:
        """Hold the next `rows` rows, or fewer where a span ends, under `lease`."""
        start, stop, deaths = self.todo.popleft()
        cut = min(stop, start + rows)
        if cut < stop:
            self.todo.appendleft(Span(cut, stop, deaths))
        self.held[lease] = Span(start, cut, deaths)
        self.remaining -= cut - start
        return start, cut

    def acknowledge(self, lease: int, rows: int) -> Rows:
        """Strike the first `rows` rows of `lease` off; the rest goes to the head of the queue."""
        start, stop, deaths = self.held.pop(lease)
        done = start + rows
        self.acknowledged += rows
        if done < stop:
            self._return(Span(done, stop, deaths))
        return start, done

    def give_back(self, lease: int, died: bool = False) -> Span:
        """Put the rows of `lease` at the head of the queue; maybe a worker `died` on them."""
        start, stop, deaths = self.held.pop(lease)
        span = Span(start, stop, deaths + died)
        self._return(span)
        return span

    def _return(self, span: Span) -> None:
        self.todo.appendleft(span)
        self.remaining += span.stop - span.start

    def validate(self) -> None:
        """Check what must always hold: every row is in one place, and no span is empty."""
        spans = sorted(self.unfinished)
        assert self.remaining == sum(span.stop - span.start for span in self.todo)
        assert all(span.start < span.stop for span in spans), spans
        for left, right in pairwise(spans):
            assert left.stop <= right.start, spans
        assert sum(span.stop - span.start for span in spans) + self.acknowledged == self.rows
