"""Messages of simulated servers in merges, and their times of arrival.

Nothing is computed. The model of a server is the list of the rows whose updates it contains, so
that a simulation can check that each row is merged exactly once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from hogbatch.cluster.decisions.estimate import ADD_SPEED, FLOAT, merge_by
from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.cluster.decisions.reduction import Cost, halving_cost, ring_cost
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.wire.messages import Reduce

Attempt = tuple[int, int]  # merge, attempt


class TrainedRows(NamedTuple):
    """Rows [start, stop) of the order of an epoch."""

    epoch: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class MergedModel:
    """The model after a merge: the one before it, and the rows in the changes of the servers."""

    before: "MergedModel | None" = None
    added: tuple[TrainedRows, ...] = ()

    def rows(self) -> list[TrainedRows]:
        """All rows whose updates it contains, in order."""
        found: list[TrainedRows] = []
        model: MergedModel | None = self
        while model is not None:
            found += model.added
            model = model.before
        return sorted(found)


class Participant(Protocol):
    """A server that takes part in merges."""

    attempt: Attempt | None  # that it has begun and waits for
    copied: tuple[TrainedRows, ...]  # its change, as copied for the merge
    merged: MergedModel  # the last one

    @property
    def alive(self) -> bool:
        """Whether its process has not exited."""

    def summed(self, asked: Reduce) -> None:
        """It has the sum of all changes."""


@dataclass(slots=True)
class Exchange:
    """The link between all servers, over which they sum the changes of a model."""

    parameters: int
    link: ServerLink
    queue: EventQueue
    servers: dict[int, Participant] = field(default_factory=dict)  # by number, the last with each
    cost: Cost | None = None  # of the last sum
    _sums: dict[int, tuple[TrainedRows, ...]] = field(default_factory=dict)  # by merge
    _models: dict[tuple[MergedModel, int], MergedModel] = field(default_factory=dict)
    _began: dict[int, float] = field(default_factory=dict)  # by merge

    @property
    def model_bytes(self) -> int:
        """The size of the model."""
        return FLOAT * self.parameters

    @property
    def pass_seconds(self) -> float:
        """Seconds in which a server copies its change, or adds the sum to its model."""
        return self.model_bytes / ADD_SPEED

    def begin(self, merge: int) -> float:
        """A server begins its part of a merge: return when the first one did."""
        return self._began.setdefault(merge, self.queue.now)

    def lost(self, numbers: Sequence[int]) -> int:
        """The first one of these servers that is not alive; -1 if all are."""
        return next((each for each in numbers if not self.servers[each].alive), -1)

    def absent(self, asked: Reduce) -> int:
        """The first server that does not take part in an attempt; -1 if all do."""
        return next((each for each in asked.numbers if not self._takes_part(each, asked)), -1)

    def _takes_part(self, number: int, asked: Reduce) -> bool:
        server = self.servers[number]
        return server.alive and server.attempt == (asked.merge, asked.attempt)

    def join(self, asked: Reduce) -> None:
        """A server has begun an attempt. When all have, they get the sum after its time."""
        if self.absent(asked) < 0:
            costs = {"ring": ring_cost, "halving": halving_cost}
            self.cost = costs[asked.schedule](len(asked.numbers))
            merge = merge_by(self.cost, self.model_bytes, self.link)
            self.queue.after(merge.seconds, lambda: self._end(asked))

    def _end(self, asked: Reduce) -> None:
        if self.absent(asked) >= 0:
            return  # one has died meanwhile, or has begun another attempt: the others wait in vain
        servers = [self.servers[number] for number in asked.numbers]
        self._sums[asked.merge] = tuple(rows for each in servers for rows in each.copied)
        for each in servers:
            each.summed(asked)

    def merged(self, before: MergedModel, merge: int) -> MergedModel:
        """The model `before` with the sum of a merge: the same object for all servers."""
        key = before, merge
        if key not in self._models:
            self._models[key] = MergedModel(before, self._sums[merge])
        return self._models[key]
