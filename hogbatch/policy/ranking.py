"""Workers in the order of a number that changes all the time, for thousands of them."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import overload

from hogbatch.policy.base import WorkerView


@dataclass(slots=True)
class Ranking:
    """Numbers of workers in ascending order of a value, which must not be nan.

    A change takes O(log n) comparisons and moves a few bytes per worker.
    """

    order: list[tuple[float, int]] = field(default_factory=list)  # (value, worker)
    _values: dict[int, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.order)

    def put(self, worker: int, value: float) -> None:
        """Rank `worker` by `value` from now on."""
        if self._values.get(worker) != value:
            self.drop(worker)
            self._values[worker] = value
            insort(self.order, (value, worker))

    def drop(self, worker: int) -> None:
        """Rank `worker` no more."""
        if worker in self._values:
            del self.order[self.place(worker)]
            del self._values[worker]

    def value(self, worker: int) -> float:
        """What `worker` is ranked by; -inf if it is not ranked."""
        return self._values.get(worker, -inf)

    def place(self, worker: int) -> int:
        """Where `worker` stands, from 0; after the last if it is not ranked."""
        if worker not in self._values:
            return len(self.order)
        return bisect_left(self.order, (self._values[worker], worker))

    def lowest_without(self, worker: int) -> float:
        """The lowest value but that of `worker`; inf if there is none."""
        return next((value for value, other in self.order[:2] if other != worker), inf)


class Others(Sequence[WorkerView]):
    """Views of all workers in a ranking but one, in its order; each is made when it is asked for.

    Good until the ranking changes.
    """

    def __init__(self, ranking: Ranking, worker: int, view: Callable[[int], WorkerView]) -> None:
        self._order = ranking.order
        self._left_out = ranking.place(worker)
        self._length = len(ranking) - (self._left_out < len(ranking))
        self._view = view

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> WorkerView: ...
    @overload
    def __getitem__(self, index: slice) -> list[WorkerView]: ...
    def __getitem__(self, index: int | slice) -> WorkerView | list[WorkerView]:
        places = range(self._length)[index]
        if isinstance(places, range):
            return [self[place] for place in places]
        return self._view(self._order[places + (places >= self._left_out)][1])

    def __iter__(self) -> Iterator[WorkerView]:
        for place, (_, worker) in enumerate(self._order):
            if place != self._left_out:
                yield self._view(worker)
