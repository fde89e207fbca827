"""The rows of a pass: those still to be done, and the leases that hold the others."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
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
class PartQueue:
    """The rows of one part that are still to be done: those returned, then the others in order."""

    number: int  # of the part
    todo: deque[RowRange] = field(default_factory=deque)
    remaining: int = 0  # rows in `todo`
    returned: int = 0  # ranges at the head of `todo` that a lease has held before

    @property
    def deaths(self) -> int:
        """Number of workers that died on the next rows; 0 if there are none."""
        return self.todo[0].deaths if self.todo else 0

    @property
    def next_rows(self) -> int:
        """Number of rows in the first range, from which `take` takes; 0 if there is none."""
        return self.todo[0].stop - self.todo[0].start if self.todo else 0

    def append(self, rows: RowRange) -> None:
        """Add rows that no lease has held to the end."""
        self.todo.append(rows)
        self.remaining += rows.stop - rows.start

    def put_back(self, rows: RowRange) -> None:
        """Return rows to the head."""
        self.todo.appendleft(rows)
        self.remaining += rows.stop - rows.start
        self.returned += 1

    def take(self, rows: int) -> RowRange:
        """Remove the next `rows` rows, or fewer where a range ends."""
        start, stop, deaths = self.todo.popleft()
        cut = min(stop, start + rows)
        if cut < stop:
            self.todo.appendleft(RowRange(cut, stop, deaths))
        elif self.returned:
            self.returned -= 1
        self.remaining -= cut - start
        return RowRange(start, cut, deaths)


@dataclass(slots=True, eq=False)
class PartGroup:
    """Parts that the same workers hold, as far as is known."""

    number: int
    remaining: int = 0  # rows in all parts
    parts: dict[int, PartQueue] = field(default_factory=dict)  # those with rows, in order
    returned: dict[int, PartQueue] = field(default_factory=dict)  # those with returned rows

    @property
    def place(self) -> tuple[bool, int, int]:
        """The lowest one comes first: groups with returned rows, then those with the most rows."""
        return not self.returned, -self.remaining, self.number

    @property
    def first(self) -> PartQueue:
        """The part whose rows come first; there must be some."""
        return next(iter((self.returned or self.parts).values()))

    def drop(self, queue: PartQueue) -> None:
        self.remaining -= queue.remaining
        self.parts.pop(queue.number, None)
        self.returned.pop(queue.number, None)

    def update(self, queue: PartQueue, change: int) -> None:
        """A part has `change` more rows than before."""
        self.remaining += change
        for queues, belongs in ((self.parts, queue.todo), (self.returned, queue.returned)):
            if belongs:
                queues[queue.number] = queue
            else:
                queues.pop(queue.number, None)


@dataclass(slots=True)
class Ledger:
    """The rows [0, rows) of one pass: each is to be done, held under a lease, or acknowledged.

    With several servers, rows that a server has trained on are in `unmerged` before they are
    acknowledged: until its model is merged, they are lost with the server.

    `parts` are the numbers of rows of the parts of divided data, in the order of the pass. A worker
    is given rows of its parts only, and a lease has rows of one part.
    """

    rows: int
    parts: Sequence[int] = ()
    held: dict[int, RowRange] = field(default_factory=dict)  # by lease
    acknowledged: int = 0
    remaining: int = 0  # rows that no lease has, and that are not acknowledged
    unmerged: dict[int, RowRange] = field(default_factory=dict)  # by lease
    grows: bool = False  # whether rows are added during the pass, by `extend`; not with parts
    _queues: list[PartQueue] = field(init=False)  # by part; a single one without parts
    _ends: list[int] = field(init=False)  # of the parts
    _group_of: list[PartGroup] = field(default_factory=list)  # by part
    # The groups that a worker can be given, by the parts that it holds.
    _reaches: dict[Sequence[int], set[PartGroup]] = field(default_factory=dict)
    _last_group: int = 0  # its number

    def __post_init__(self) -> None:
        assert not self.parts or sum(self.parts) == self.rows, "the parts have all rows"
        self._ends = list(accumulate(self.parts))
        self._fill([RowRange(0, self.rows)])

    @classmethod
    def resumed(cls, rows: int, todo: Iterable[RowRange], parts: Sequence[int] = ()) -> "Ledger":
        """A pass over `rows` rows of which only `todo` are left."""
        ledger = cls(rows, parts)
        ledger._fill(todo)
        ledger.acknowledged = rows - ledger.remaining
        return ledger

    def _fill(self, todo: Iterable[RowRange]) -> None:
        """Let only `todo` be left, divided where parts end."""
        self._queues = [PartQueue(number) for number in range(max(1, len(self.parts)))]
        for each in todo:
            for piece in self._pieces(each):
                self._queues[self._part_of(piece.start)].append(piece)
        self.remaining = sum(queue.remaining for queue in self._queues)
        group = PartGroup(0)
        self._group_of = [group] * len(self._queues)
        for queue in self._queues:
            group.update(queue, queue.remaining)

    def _pieces(self, rows: RowRange) -> Iterator[RowRange]:
        start, stop, deaths = rows
        while start < stop:
            end = min(stop, self._ends[self._part_of(start)]) if self._ends else stop
            yield RowRange(start, end, deaths)
            start = end

    def _part_of(self, row: int) -> int:
        return bisect_right(self._ends, row)

    @property
    def divided(self) -> bool:
        return bool(self._ends)

    @property
    def finished(self) -> bool:
        return self.acknowledged == self.rows

    @property
    def todo(self) -> list[RowRange]:
        """The rows that no lease has, and that are not acknowledged."""
        return [each for queue in self._queues for each in queue.todo]

    @property
    def parts_left(self) -> Iterator[int]:
        """The numbers of the parts of which rows are in `todo`."""
        return (queue.number for queue in self._queues if queue.todo)

    @property
    def unfinished(self) -> list[RowRange]:
        """All rows that are not acknowledged: those trained on or held, then those in `todo`."""
        return [*self.unmerged.values(), *self.held.values(), *self.todo]

    @property
    def unmerged_rows(self) -> int:
        """Rows that are trained on but not merged."""
        return sum(each.stop - each.start for each in self.unmerged.values())

    @property
    def held_rows(self) -> int:
        """Rows that leases hold, without a loop over the leases: there may be thousands."""
        return self.rows - self.remaining - self.acknowledged - self.unmerged_rows

    def left(self, parts: Sequence[int] = ()) -> int:
        """Rows in `todo` that can be given to a worker that holds `parts`."""
        if not self._ends:
            return self.remaining
        return sum(group.remaining for group in self._reach(parts))

    def ahead(self, parts: Sequence[int] = ()) -> int:
        """The same, as far as is known: many if rows are added."""
        return MANY_ROWS if self.grows else self.left(parts)

    def next_part(self, parts: Sequence[int] = ()) -> PartQueue | None:
        """The part of which a worker that holds `parts` is given rows next; None without any.

        One with returned rows, or else the one with the most rows left, where parts that the same
        workers hold count together. So all parts come to an end at about the same time, whatever
        the speeds of the workers that hold them.
        """
        if self._ends:
            left = (group for group in self._reach(parts) if group.remaining)
            group = min(left, key=lambda group: group.place, default=None)
            return None if group is None else group.first
        return self._queues[0] if self.remaining else None

    def _reach(self, parts: Sequence[int]) -> set[PartGroup]:
        """The groups that a worker which holds `parts` can be given.

        The first call moves these parts to groups of their own: one for those of each group.
        """
        if parts in self._reaches:
            return self._reaches[parts]
        moved: dict[PartGroup, PartGroup] = {}  # by the group before
        for queue in (self._queues[part] for part in parts if part < len(self._queues)):
            before = self._group_of[queue.number]
            if before not in moved:
                self._last_group += 1
                moved[before] = PartGroup(self._last_group)
                for reach in self._reaches.values():
                    if before in reach:
                        reach.add(moved[before])
            before.drop(queue)
            moved[before].update(queue, queue.remaining)
            self._group_of[queue.number] = moved[before]
        self._reaches[parts] = set(moved.values())
        return self._reaches[parts]

    def extend(self, start: int, stop: int) -> None:
        """Add the rows [start, stop), which are not in this pass yet, to those to be done last."""
        self.rows += stop - start
        self.remaining += stop - start
        self._queues[0].append(RowRange(start, stop))

    def take(self, lease: int, rows: int, parts: Sequence[int] = ()) -> Rows:
        """Hold the next `rows` rows for a worker that holds `parts`, under `lease`.

        There must be some; they are fewer where a range ends.
        """
        queue = self.next_part(parts)
        assert queue is not None, "rows are left in these parts"
        taken = self.held[lease] = queue.take(rows)
        size = taken.stop - taken.start
        self.remaining -= size
        if self._ends:
            self._group_of[queue.number].update(queue, -size)
        return taken.rows

    def acknowledge(self, lease: int, rows: int) -> Rows:
        """Mark the first `rows` rows of `lease` as done; the rest is to be done next."""
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
        """Let the unmerged rows of `leases` be done again, next; return which they are."""
        discarded = self._unmerged(leases)
        for each in reversed(discarded):
            self._return(each)
        return [each.rows for each in discarded]

    def _unmerged(self, leases: Iterable[int]) -> list[RowRange]:
        """Remove the rows of `leases` from those unmerged; leases without rows there are left out.

        Rows of leases of an earlier pass are merged, because that pass has ended.
        """
        return [self.unmerged.pop(lease) for lease in leases if lease in self.unmerged]

    def take_back(self, lease: int, died: bool = False) -> None:
        """Let the rows of `lease` be done next; `died`: count a death on them."""
        start, stop, deaths = self.held.pop(lease)
        self._return(RowRange(start, stop, deaths + died))

    def _return(self, rows: RowRange) -> None:
        queue, size = self._queues[self._part_of(rows.start)], rows.stop - rows.start
        queue.put_back(rows)
        self.remaining += size
        if self._ends:
            self._group_of[queue.number].update(queue, size)
