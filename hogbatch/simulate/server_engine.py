"""A simulated server: its leases take the time that its speed implies, its merges that of a link.

It is the counterpart of `distributed.server` with its workers, as seen by the coordinator of all
servers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hogbatch.simulate.exchange import Attempt, Exchange, MergedModel, TrainedRows
from hogbatch.simulate.speed_engine import SpeedEngine
from hogbatch.wire.messages import (
    Applied,
    Apply,
    Collect,
    Collected,
    Connected,
    FromServer,
    Lease,
    Loaded,
    Reduce,
    Reduced,
    Servers,
    ToServer,
    UseMean,
    UseModel,
    Welcome,
)

CONNECT_S: Final = 0.037  # as measured with NIXL, see docs/cluster.md
UNREACHABLE_S: Final = 10.0  # without an answer of another server


@dataclass(slots=True, eq=False)
class ServerEngine(SpeedEngine):
    """Trains at the speed of all its workers together, and takes part in merges."""

    exchange: Exchange = field(kw_only=True)
    parts: tuple[int, ...] = field(kw_only=True, default=())  # of divided data that it holds
    merged: MergedModel = field(default_factory=MergedModel)
    change: list[TrainedRows] = field(default_factory=list)  # since the last merge
    copied: tuple[TrainedRows, ...] = ()
    attempt: Attempt | None = None
    _leases: int = 0  # training leases that are done
    _asked: ToServer | None = None  # last
    _began: float = 0.0  # the merge
    _collected: Collected | None = None  # to be sent with the sum

    @property
    def alive(self) -> bool:
        """Whether its process has not exited."""
        return self._host.alive

    def _welcomed(self, welcome: Welcome) -> None:
        self.exchange.servers[welcome.worker] = self

    def _trained(self, lease: Lease, rows: int) -> None:
        self._leases += 1
        self.change.append(TrainedRows(lease.epoch, lease.start, lease.start + rows))

    def serve(self, message: ToServer) -> None:
        """Do what the coordinator asks for; an attempt that is under way is given up."""
        self._asked, self.attempt = message, None
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
            case UseMean():
                pass

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
        return Collected(merge, self._leases, leases, batch_size, 0.0, finite=True)

    def _join(self, asked: Reduce, collected: Collected | None) -> None:
        if self._asked is not asked:
            return
        self.attempt = asked.merge, asked.attempt
        self._collected = collected
        self._host.later(UNREACHABLE_S, lambda: self._give_up(asked))
        self.exchange.join(asked)

    def _give_up(self, asked: Reduce) -> None:
        """Name a server that did not take part in time."""
        absent = self.exchange.absent(asked)
        if self.attempt == (asked.merge, asked.attempt) and absent >= 0:
            self._host.post(Reduced(asked.merge, asked.attempt, absent))

    def summed(self, asked: Reduce) -> None:
        self.attempt = None
        collected = self._collected
        self._answer(0.0, lambda: Reduced(asked.merge, asked.attempt, collected=collected))

    def _apply(self, merge: int) -> Applied:
        """Add the sum to the model, without the own change, which it contains already."""
        self.merged = self.exchange.merged(self.merged, merge)
        del self.change[: len(self.copied)]
        self.copied = ()
        return Applied(merge, self._host.now - self._began)
