"""Actions of a real run for its model.

Slow actions run on background threads, which pass the events that follow to the coordinator.
"""

import time
from functools import partial

from hogbatch.coordinator.adapters import CheckpointAdapter, RunAdapters
from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.commands import (
    Actions,
    Command,
    Keep,
    LoadServer,
    Measure,
    Report,
    RollBack,
    ShowKept,
    ShowMean,
    Snapshot,
)
from hogbatch.coordinator.state import Coordinator


def model_actions(
    state: Coordinator, adapters: RunAdapters, background: BackgroundTasks
) -> Actions:
    snapshots = adapters.snapshots

    def snapshot(command: Snapshot) -> None:
        draft = None if command.saved is None else snapshots.draft(command.saved)
        background.copies.submit(copy, draft)

    def copy(draft: CheckpointAdapter | None) -> Event:
        try:
            not_finite_at = snapshots.copy(draft)
        except ConnectionError:
            return state.snapshot_failed
        if draft is not None and not_finite_at is None:
            background.writes.submit(write, draft)
        return partial(state.snapshot_taken, not_finite_at)

    def write(draft: CheckpointAdapter) -> Event:
        return partial(written, draft, draft.write())

    def written(draft: CheckpointAdapter, failure: str | None, now: float) -> list[Command]:
        if failure is None:
            adapters.record(draft.about)
        return state.checkpoint_written(failure, now)

    def measure(command: Measure) -> Event:
        return partial(state.measured, adapters.measure(command.set, command.metric))

    def load(command: LoadServer) -> Event:
        assert adapters.load_server is not None, "only runs on several servers give this command"
        failure = adapters.load_server(command.worker, command.source)
        return partial(state.model_written, command.worker, failure)

    return {
        Snapshot: snapshot,
        RollBack: lambda _: snapshots.roll_back(),
        Report: lambda it: adapters.report(it.evaluation, state.totals(time.monotonic())),
        ShowMean: lambda it: adapters.show_mean(it.shown),
        ShowKept: lambda it: adapters.show_kept(it.shown),
        Measure: lambda it: background.copies.submit(measure, it),
        Keep: lambda it: adapters.keep(it.evaluation),
        LoadServer: lambda it: background.exchanges.submit(load, it),
    }
