"""Groups of actions of a real run: for the model, and for servers whose models are merged.

Slow actions run on background threads, which pass the events that follow to the coordinator.
"""

from collections.abc import Callable
from functools import partial

from hogbatch.coordinator.adapters import (
    CheckpointAdapter,
    RunAdapters,
    ServersAdapter,
)
from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.commands import Command
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.records import Evaluation, RunTotals


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
            self._adapters.record(draft.about)
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
