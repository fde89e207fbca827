"""The objects of a run in the coordinator process, and their connections."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

from hogbatch.coordinator.adapters import ProcessAdapter, RunAdapters
from hogbatch.coordinator.commands import Finish
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import Resumed
from hogbatch.events.recorder import RefusalCounts, RunRecorder
from hogbatch.events.records import Evaluation, RunTotals
from hogbatch.kernels.contract import Floats
from hogbatch.policy.base import BatchPolicy
from hogbatch.run.checkpoint.snapshots import Snapshots
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


class Outcome(NamedTuple):
    """The results of the coordinator's loop."""

    finish: Finish
    totals: RunTotals
    refused: RefusalCounts


@dataclass(frozen=True, slots=True)
class RunComponents:
    """The coordinator of a run and the objects that carry out its commands."""

    setup: RunSetup
    segments: RunSegments
    directory: RunDirectory
    console: Console
    recorder: RunRecorder
    coordinator: Coordinator
    moving_mean: MovingMean
    snapshots: Snapshots
    metrics: SetMetrics

    @classmethod
    def build(
        cls,
        setup: RunSetup,
        policy: BatchPolicy,
        segments: RunSegments,
        directory: RunDirectory,
        console: Console,
        recorder: RunRecorder,
    ) -> Self:
        """Connect the components of a new run, or restore those of a resumed one."""
        model = segments.model
        coordinator = _coordinator(setup, policy, segments, recorder)
        moving_mean = MovingMean(model)
        snapshots = Snapshots(
            model,
            setup.network,
            directory.checkpoints,
            partial(
                describe_checkpoint,
                setup.identity,
                setup.settings,
                recorder,
                segments.quarantined,
            ),
            segments.initialise_model,
            moving_mean.reset,
            directory.expect_in_place,
        )
        return cls(
            setup,
            segments,
            directory,
            console,
            recorder,
            coordinator,
            moving_mean,
            snapshots,
            SetMetrics(setup, segments.scores, recorder),
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

    def adapters(
        self,
        endpoint: CoordinatorChannel,
        processes: ProcessAdapter,
        attached_by: Callable[[int], bool] = lambda pid: False,
    ) -> RunAdapters:
        """Return what the coordinator's loop needs, with these connections to workers."""
        return RunAdapters(
            endpoint=endpoint,
            attached_by=attached_by,
            revoke=self.segments.fences.revoke,
            processes=processes,
            snapshots=self.snapshots,
            shuffle=self.segments.shuffle,
            quarantine=self.segments.quarantine,
            record=self.recorder.record,
            write_due=self.recorder.log.write_due,
            report=self.recorder.report,
            show_mean=self.moving_mean.show,
            show_kept=self.recorder.show_kept,
            keep=self.keep,
            measure=self.metrics.measure,
        )

    def keep(self, evaluation: Evaluation | None, params: Floats | None = None) -> None:
        """Keep the parameters, and what their metrics at the end are computed from."""
        if self.recorder.keep(evaluation, params):
            self.metrics.keep(evaluation)

    def save_checkpoint(self) -> None:
        """Write a checkpoint of the finished run, from which it can be continued."""
        pending = self.snapshots.draft(self.coordinator.saved(time.monotonic()))
        if not self.snapshots.copy(pending) and (failure := pending.write()):
            self.console.say(failure)


def _coordinator(
    setup: RunSetup, policy: BatchPolicy, segments: RunSegments, recorder: RunRecorder
) -> Coordinator:
    """Return a coordinator at the start of a run, or at the resume point."""
    resume_point, policy = setup.resume_point, limited(policy, recorder.record)
    if resume_point is None:
        return Coordinator(setup.plan, policy)
    arrays, described = resume_point.checkpoint.arrays, resume_point.described
    saved = described.state
    segments.restore(arrays)
    chosen = described.threshold, described.temperature
    recorder.resume(described.history, described.kept, arrays.get("kept"), *chosen)
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
