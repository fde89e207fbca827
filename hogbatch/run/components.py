"""The objects of a run in the coordinator process, and their connections."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from hogbatch.coordinator import commands
from hogbatch.coordinator.adapters import Adapters, ProcessAdapter
from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.loop import Loop
from hogbatch.coordinator.saved_state import save
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.crash import crash_report
from hogbatch.events.event import Evaluation, Resumed
from hogbatch.events.names import CRASH
from hogbatch.events.recorder import RunRecorder
from hogbatch.events.records import RunTotals
from hogbatch.kernels.contract import Floats
from hogbatch.policy.base import BatchPolicy
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.checkpoint.snapshots import PendingCheckpoint, Snapshots
from hogbatch.run.measure import SetMetrics
from hogbatch.run.policy_limit import limited
from hogbatch.run.resume import describe_checkpoint
from hogbatch.run.rundir import RunDirectory
from hogbatch.run.segments import RunSegments
from hogbatch.run.setup import RunSetup
from hogbatch.store.average import MovingMean
from hogbatch.views.console import Console
from hogbatch.wire.channel import CoordinatorChannel
from hogbatch.wire.messages import Welcome
from hogbatch.workers.compute.assignment import Assignment

LoadModel = Callable[[str, str | None], str | None]  # of a server, and that of its source


class Outcome(NamedTuple):
    """The results of the coordinator's loop."""

    finish: commands.Finish
    totals: RunTotals


@dataclass(slots=True)
class RunComponents:
    """The coordinator of a run, and the connected objects that carry out its commands."""

    setup: RunSetup
    segments: RunSegments
    directory: RunDirectory
    console: Console
    recorder: RunRecorder
    coordinator: Coordinator
    moving_mean: MovingMean = field(init=False)
    snapshots: Snapshots = field(init=False)
    metrics: SetMetrics = field(init=False)

    def __post_init__(self) -> None:
        setup, segments, recorder = self.setup, self.segments, self.recorder
        described = setup.identity, setup.settings, recorder, segments.quarantined
        self.moving_mean = MovingMean(segments.model)
        self.metrics = SetMetrics(setup, segments.scores, recorder)
        self.snapshots = Snapshots(
            segments.model,
            setup.network,
            self.directory.checkpoints,
            partial(describe_checkpoint, *described),
            segments.initialise_model,
            self.moving_mean.reset,
            self.directory.expect_in_place,
        )

    def assign(self, welcome: Welcome) -> Assignment:
        """Return the assignment of a worker in this process that `welcome` admits."""
        setup, segments = self.setup, self.segments
        return Assignment(
            welcome=welcome,
            network=setup.network,
            sets=setup.loaded.sets,
            orders=segments.orders,
            model=segments.model,
            fence=segments.fences.line(welcome.worker),
            scores=segments.scores,
        )

    def actions(self, now: Callable[[], float] = time.monotonic) -> commands.Actions:
        """Return the actions for commands about the model and its rows that are done at once."""
        segments, recorder, state = self.segments, self.recorder, self.coordinator
        return {
            commands.Revoke: lambda it: segments.fences.revoke(it.number),
            commands.Quarantine: lambda it: segments.quarantine(it.epoch, it.start, it.stop),
            commands.RollBack: lambda _: self.snapshots.roll_back(),
            commands.Record: lambda it: recorder.record(it.event),
            commands.Report: lambda it: recorder.record(it.evaluation, state.totals(now()).workers),
            commands.ShowMean: lambda it: self.moving_mean.show(it.shown),
            commands.ShowKept: lambda it: recorder.show_kept(it.shown),
            commands.Keep: lambda it: self.keep(it.evaluation),
        }

    def run_loop(
        self,
        endpoint: CoordinatorChannel,
        processes: ProcessAdapter,
        callbacks: Callbacks,
        attached_by: Callable[[int], bool] = lambda pid: False,
        *,
        actions: commands.Actions = MappingProxyType({}),
        pull: Callable[[], None] = lambda: None,
        load_server: LoadModel | None = None,
    ) -> tuple[commands.Finish, RunTotals]:
        """Run the coordinator's loop, with these connections to workers.

        If these are servers with models of their own, `actions` are those that differ then; `pull`
        is called before a snapshot is taken, and raises ConnectionError if no server can be
        reached; `load_server` does what LoadServer says and returns why that failed, if it did.
        """
        recorder, background = self.recorder, BackgroundTasks()
        recorder.observers.append(callbacks)
        log = recorder.record, recorder.log.write_due
        adapters = Adapters(endpoint, attached_by, processes, self.segments.shuffle, *log)
        all_actions = {
            **self.actions(),
            **_in_background(self, background, pull, load_server),
            **actions,
        }
        interrupts = callbacks.interrupts
        loop = Loop(self.coordinator, adapters, background, interrupts, actions=all_actions)
        with crash_report(self.setup.run_dir / CRASH, self.setup.settings, loop.received):
            return loop.run()

    def keep(self, evaluation: Evaluation | None, params: Floats | None = None) -> None:
        """Keep the parameters, and what their metrics at the end are computed from."""
        if self.recorder.keep(evaluation, params):
            self.metrics.keep(evaluation)

    def save_checkpoint(self) -> None:
        """Write a checkpoint of the finished run, from which it can be continued."""
        pending = self.snapshots.draft(save(self.coordinator, time.monotonic()))
        if not self.snapshots.copy(pending) and (failure := pending.write()):
            self.console.say(failure)


def _in_background(
    components: RunComponents,
    background: BackgroundTasks,
    pull: Callable[[], None],
    load_server: LoadModel | None,
) -> commands.Actions:
    """The actions that take long; the events that follow are passed to the coordinator."""
    state, snapshots = components.coordinator, components.snapshots

    def snapshot(command: commands.Snapshot) -> None:
        draft = None if command.saved is None else snapshots.draft(command.saved)
        background.copies.submit(copy, draft)

    def copy(draft: PendingCheckpoint | None) -> Event:
        try:
            pull()
        except ConnectionError:
            return state.snapshot_failed
        not_finite_at = snapshots.copy(draft)
        if draft is not None and not_finite_at is None:
            background.writes.submit(write, draft)
        return partial(state.snapshot_taken, not_finite_at)

    def write(draft: PendingCheckpoint) -> Event:
        return partial(written, draft, draft.write())

    def written(
        draft: PendingCheckpoint, failure: str | None, now: float
    ) -> list[commands.Command]:
        if failure is None:
            components.recorder.record(draft.about)
        return state.checkpoint_written(failure, now)

    def measure(command: commands.Measure) -> Event:
        return partial(state.measured, components.metrics.measure(command.set, command.metric))

    def load(command: commands.LoadServer) -> Event:
        assert load_server is not None, "only runs on several servers give this command"
        failure = load_server(command.worker, command.source)
        return partial(state.model_written, command.worker, failure)

    return {
        commands.Snapshot: snapshot,
        commands.Measure: lambda it: background.copies.submit(measure, it),
        commands.LoadServer: lambda it: background.exchanges.submit(load, it),
    }


def coordinator_of(
    setup: RunSetup, policy: BatchPolicy, segments: RunSegments, recorder: RunRecorder
) -> Coordinator:
    """Return a coordinator at the start of a run, or at the resume point, which is restored."""
    resume_point, policy = setup.resume_point, limited(policy, recorder.record)
    if resume_point is None:
        return Coordinator(setup.plan, policy)
    arrays, described = resume_point.checkpoint.arrays, resume_point.described
    saved = described.state
    segments.restore(arrays)
    recorder.history = described.history
    if "kept" in arrays:
        recorder.keep(described.kept, arrays["kept"])
    recorder.threshold, recorder.temperature = described.threshold, described.temperature
    arrays.clear()  # they take as much memory as the model with its optimizer slots
    recorder.record(
        Resumed(
            checkpoint=str(resume_point.checkpoint.path),
            epoch=saved.epoch,
            todo=[list(span.rows) for span in saved.todo],
            rows=saved.rows,
            seconds=saved.seconds,
            evaluations=len(described.history),
        )
    )
    return Coordinator.resumed(setup.plan, policy, saved)
