"""A simulated server: its leases take the time that its speed implies, its merges that of a link.

It is the counterpart of `hogbatch.cluster.server` with its workers, as seen by the coordinator of
all servers. Nothing is computed. The model of a server is the list of the rows whose updates it
contains, so that a simulation can check that each row is merged exactly once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.speed import SpeedEngine
from hogbatch.simulate.worker import SimulatedWorker
from hogbatch.wire.messages import (
    Applied,
    Apply,
    Collect,
    Collected,
    Connected,
    Done,
    FromServer,
    Loaded,
    Ready,
    Reduce,
    Reduced,
    Servers,
    ToServer,
    UseModel,
    Welcome,
)
from tests.simulation.link import (
    ADD_SPEED,
    FLOAT,
    PredictedMerge,
    ServerLink,
    predicted_merge,
)

CONNECT_S: Final = 0.037  # as measured with NIXL, see docs/cluster.md
UNREACHABLE_S: Final = 10.0  # without an answer of another server


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


@dataclass(slots=True)
class Exchange:
    """The link between all servers, over which they sum the changes of a model."""

    parameters: int
    link: ServerLink
    queue: EventQueue
    servers: "dict[int, ServerEngine]" = field(default_factory=dict)  # by number: the last with it
    last: PredictedMerge | None = None
    _sums: dict[int, tuple[TrainedRows, ...]] = field(default_factory=dict)  # by merge
    _models: dict[tuple[MergedModel, int], MergedModel] = field(default_factory=dict)
    _began: dict[int, float] = field(default_factory=dict)  # by merge

    @property
    def model_bytes(self) -> int:
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

    def absent(self, message: Reduce) -> int:
        """The first server that does not take part in an attempt; -1 if all do."""
        return next((each for each in message.numbers if not self._takes_part(each, message)), -1)

    def _takes_part(self, number: int, message: Reduce) -> bool:
        server = self.servers[number]
        return server.alive and server.attempt == (message.merge, message.attempt)

    def join(self, message: Reduce) -> None:
        """A server has begun an attempt. When all have, they get the sum after its time."""
        if self.absent(message) < 0:
            self.last = predicted_merge(self.parameters, len(message.numbers), self.link)
            self.queue.after(self.last.seconds, lambda: self._end(message))

    def _end(self, message: Reduce) -> None:
        if self.absent(message) >= 0:
            return  # one has died meanwhile, or has begun another attempt: the others wait in vain
        servers = [self.servers[number] for number in message.numbers]
        self._sums[message.merge] = tuple(rows for each in servers for rows in each.copied)
        for each in servers:
            each.summed(message)

    def merged(self, before: MergedModel, merge: int) -> MergedModel:
        """The model `before` with the sum of a merge: the same object for all servers."""
        key = before, merge
        if key not in self._models:
            self._models[key] = MergedModel(before, self._sums[merge])
        return self._models[key]


@dataclass(eq=False)
class ServerEngine(SpeedEngine):
    """Trains at the speed of all its workers together, and takes part in merges."""

    exchange: Exchange = field(kw_only=True)
    parts: tuple[int, ...] = field(kw_only=True, default=())  # of divided data that it holds
    merged: MergedModel = field(default_factory=MergedModel)
    change: list[TrainedRows] = field(default_factory=list)  # since the last merge
    copied: tuple[TrainedRows, ...] = ()
    attempt: tuple[int, int] | None = None  # merge, attempt
    _leases: int = 0  # training leases that are done
    _message: ToServer | None = None  # last
    _began: float = 0.0  # the merge
    _collected: Collected | None = None  # to be sent with the sum

    @property
    def alive(self) -> bool:
        return self._host.alive

    def prepare(self, welcome: Welcome, host: SimulatedWorker) -> tuple[float, Ready]:
        self.exchange.servers[welcome.worker] = self
        seconds, ready = super().prepare(welcome, host)
        return seconds, replace(ready, profile=((1, self.speed.seconds(1, 1)),))

    def _finish(self, done: Done) -> None:
        lease = self._queue[0]
        if self._host.fence == lease.fence and lease.task == "train":
            self._leases += 1
            self.change.append(TrainedRows(lease.epoch, lease.start, lease.stop))
        super()._finish(done)

    def serve(self, message: ToServer) -> None:
        """Do what the coordinator asks for; an attempt that is under way is given up."""
        self._message, self.attempt = message, None
        copying = self.exchange.pass_seconds
        match message:
            case Servers(version, numbers):
                lost = self.exchange.lost(numbers)
                self._answer(CONNECT_S, lambda: Connected(version, b"", lost))
            case Collect(merge):
                collected = self._collect(merge)
                self._answer(copying, lambda: collected)
            case Reduce(merge, collect=collect):
                first = self._collect(merge) if collect else None
                self._host.later(copying * collect, lambda: self._join(message, first))
            case Apply(merge):
                self._answer(copying, lambda: self._apply(merge))
            case UseModel():
                self.change.clear()
                self._answer(0.0, Loaded)

    def _answer(self, seconds: float, answer: Callable[[], FromServer]) -> None:
        self._host.later(seconds, lambda: self._host.post(answer()))

    def _collect(self, merge: int) -> Collected:
        """Copy the change: what is trained on from now on belongs to the next merge."""
        self._began = self._host.now
        self.exchange.begin(merge)
        self.copied = tuple(self.change)
        leases = len(self.copied)  # each counts as one update
        rows = sum(each.stop - each.start for each in self.copied)
        batch_size = max(1, rows // max(1, leases))
        return Collected(merge, self._leases, leases, batch_size, finite=True)

    def _join(self, message: Reduce, collected: Collected | None) -> None:
        if self._message is not message:
            return
        self.attempt = message.merge, message.attempt
        self._collected = collected
        self._host.later(UNREACHABLE_S, lambda: self._give_up(message))
        self.exchange.join(message)

    def _give_up(self, message: Reduce) -> None:
        """Name a server that did not take part in time."""
        absent = self.exchange.absent(message)
        if self.attempt == (message.merge, message.attempt) and absent >= 0:
            self._host.post(Reduced(message.merge, message.attempt, absent))

    def summed(self, message: Reduce) -> None:
        self.attempt = None
        collected = self._collected
        self._answer(0.0, lambda: Reduced(message.merge, message.attempt, collected=collected))

    def _apply(self, merge: int) -> Applied:
        """Add the sum to the model, without the own change, which it contains already."""
        self.merged = self.exchange.merged(self.merged, merge)
        del self.change[: len(self.copied)]
        self.copied = ()
        return Applied(merge, self._host.now - self._began)
