"""Groups of actions of a real run: for the model, for servers, and for the coordinator of all.

Slow actions run on background threads, which pass the events that follow to the coordinator.
"""

from collections.abc import Callable, Iterator
from functools import partial

from hogbatch.cluster.supplied import SuppliedCoordinator
from hogbatch.coordinator.adapters import (
    CheckpointAdapter,
    RunAdapters,
    ServersAdapter,
    UpstreamAdapter,
)
from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.commands import Command, MergeStep
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.records import Evaluation, RunTotals
from hogbatch.wire.messages import ToCoordinator


class RunModel:
    """The model of a run (ModelActions)."""

    def __init__(
        self,
        state: Coordinator,
        adapters: RunAdapters,
        background: BackgroundTasks,
        totals: Callable[[], RunTotals],
    ) -> None:
        self._state, self._adapters = state, adapters
        self._background, self._totals = background, totals

    def snapshot(self, saved: SavedState | None) -> None:
        draft = None if saved is None else self._adapters.snapshots.draft(saved)
        self._background.copies.submit(self._copy, draft)

    def roll_back(self) -> None:
        self._adapters.snapshots.roll_back()

    def report(self, evaluation: Evaluation) -> None:
        self._adapters.report(evaluation, self._totals())

    def show_mean(self, shown: bool) -> None:
        self._adapters.show_mean(shown)

    def keep(self, evaluation: Evaluation | None) -> None:
        self._adapters.keep(evaluation)

    def _copy(self, draft: CheckpointAdapter | None) -> Event:
        not_finite_at = self._adapters.snapshots.copy(draft)
        if draft is not None and not_finite_at is None:
            self._background.writes.submit(self._write, draft)
        return partial(self._state.snapshot_taken, not_finite_at)

    def _write(self, draft: CheckpointAdapter) -> Event:
        return partial(self._written, draft, draft.write())

    def _written(self, draft: CheckpointAdapter, failure: str | None, now: float) -> list[Command]:
        if failure is None:
            self._adapters.record("checkpoint", draft.about)
        return self._state.checkpoint_written(failure, now)


class Servers:
    """The servers whose models are merged (ServersActions)."""

    def __init__(
        self, state: Coordinator, servers: ServersAdapter, background: BackgroundTasks
    ) -> None:
        self._state, self._servers, self._background = state, servers, background

    def load_server(self, worker: str, source: str | None) -> None:
        self._background.exchanges.submit(self._load, worker, source)

    def limit_restarts(self, worker: str, reason: str) -> None:
        self._servers.limit_restarts(worker, reason)

    def _load(self, worker: str, source: str | None) -> Event:
        return partial(self._state.model_written, worker, self._servers.load(worker, source))


class UpstreamOrders:
    """The connection to the coordinator of all servers (UpstreamActions)."""

    def __init__(
        self, state: SuppliedCoordinator, upstream: UpstreamAdapter, background: BackgroundTasks
    ) -> None:
        self._state, self._upstream, self._background = state, upstream, background

    def events(self) -> Iterator[Event]:
        """Yield the events of the orders received since the last call."""
        for order in self._upstream.receive():
            yield partial(self._state.order, order)

    def answer(self, message: ToCoordinator) -> None:
        self._upstream.send(message)

    def exchange(self, asked: MergeStep) -> None:
        self._upstream.interrupt_exchange()
        self._background.exchanges.submit(self._exchange, asked)

    def _exchange(self, asked: MergeStep) -> Event:
        return partial(self._state.exchanged, asked, self._upstream.exchange(asked))
