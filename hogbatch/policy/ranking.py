"""Rankings of thousands of workers by a value that changes often."""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import overload

from hogbatch.policy.base import WorkerView


@dataclass(slots=True)
class Ranking:
    """Worker numbers in ascending order of a value, which must not be nan.

    A change takes O(log n) comparisons and moves a few bytes per worker.
    """

    order: list[tuple[float, int]] = field(default_factory=list)  # (value, worker)
    _values: dict[int, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.order)

    def put(self, worker: int, value: float) -> None:
        """Set the value of `worker`."""
        if self._values.get(worker) != value:
            self.drop(worker)
            self._values[worker] = value
            insort(self.order, (value, worker))

    def drop(self, worker: int) -> None:
        """Remove `worker`."""
        if worker in self._values:
            del self.order[self.place(worker)]
            del self._values[worker]

    def value(self, worker: int) -> float:
        """The value of `worker`; -inf if it is not ranked."""
        return self._values.get(worker, -inf)

    def place(self, worker: int) -> int:
        """The position of `worker`, from 0; the number of ranked workers if it is not ranked."""
        if worker not in self._values:
            return len(self.order)
        return bisect_left(self.order, (self._values[worker], worker))

    def lowest_without(self, worker: int) -> float:
        """The lowest value of all workers except `worker`; inf if there is no other."""
        return next((value for value, other in self.order[:2] if other != worker), inf)


class Others(Sequence[WorkerView]):
    """Views of all workers in a ranking except one, in its order; each is created on access.

    Valid until the ranking changes.
    """

    def __init__(self, ranking: Ranking, worker: int, view: Callable[[int], WorkerView]) -> None:
        self._order = ranking.order
        self._excluded = ranking.place(worker)
        self._length = len(ranking) - (self._excluded < len(ranking))
        self._view = view

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> WorkerView: ...
    @overload
    def __getitem__(self, index: slice) -> list[WorkerView]: ...
    def __getitem__(self, index: int | slice) -> WorkerView | list[WorkerView]:
        positions = range(self._length)[index]
        if isinstance(positions, range):
            return [self[position] for position in positions]
        return self._view(self._order[positions + (positions >= self._excluded)][1])
