"""The objects of a run in the coordinator process, and their connections."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

from hogbatch.checkpoint.rundir import CRASH, RunDirectory
from hogbatch.checkpoint.snapshots import Snapshots
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.adapters import Adapters
from hogbatch.coordinator.commands import Finish
from hogbatch.coordinator.loop import Loop
from hogbatch.coordinator.state import Coordinator
from hogbatch.data.batch import Inputs
from hogbatch.launch.base import Launcher
from hogbatch.policy.base import BatchPolicy
from hogbatch.run.processes import launched_workers, open_planes
from hogbatch.run.resume import describe_checkpoint
from hogbatch.run.segments import RunSegments
from hogbatch.run.setup import RunSetup
from hogbatch.store.average import MovingMean
from hogbatch.store.segment_server import SegmentServer
from hogbatch.telemetry.console import Console
from hogbatch.telemetry.crash import crash_report
from hogbatch.telemetry.recorder import RefusalCounts, RunRecorder
from hogbatch.telemetry.records import RunTotals
from hogbatch.telemetry.skipped_rows import largest_feature, skipped_warning
from hogbatch.wire.sockets import Router


class Outcome(NamedTuple):
    """How the coordinator's loop ended."""

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

    @classmethod
    def build(
        cls,
        setup: RunSetup,
        policy: BatchPolicy,
        segments: RunSegments,
        directory: RunDirectory,
        console: Console,
    ) -> Self:
        """Connect the components of a new run, or restore those of a resumed one."""
        model = segments.model
        recorder = RunRecorder(setup.run_dir, console, model.params, setup.continues)
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
            directory.saving,
        )
        return cls(
            setup, segments, directory, console, recorder, coordinator, moving_mean, snapshots
        )

    def run(self, workers: tuple[WorkerRequest, ...], *, launch: bool) -> Outcome:
        """Train until the coordinator finishes; with `launch`, start `workers`."""
        setup, mean = self.setup, self.moving_mean
        config, run_dir = setup.config, setup.run_dir
        sample_mean = self.coordinator.plan.stopping.average and not config.deterministic
        with (
            open_planes(config, run_dir, self.segments, self.directory.run_lock) as planes,
            launched_workers(workers, run_dir, config.pin) as launcher,
            mean.sampling() if sample_mean else nullcontext(),
        ):
            router, segment_server = planes
            if not launch:
                self.console.say(f"waiting for workers: hogbatch worker cpu {run_dir}")
            loop = Loop(self.coordinator, self._adapters(router, segment_server, launcher))
            with crash_report(run_dir / CRASH, setup.settings, loop.received):
                finish, totals = loop.run()
            segment_server.close()  # rejects workers that are still connecting
        refused = RefusalCounts(router.refused, router.rejected + segment_server.refused)
        return Outcome(finish, totals, refused)

    def _adapters(
        self, router: Router, segment_server: SegmentServer, launcher: Launcher
    ) -> Adapters:
        return Adapters(
            endpoint=router,
            segment_server=segment_server,
            fences=self.segments.fences,
            processes=launcher,
            snapshots=self.snapshots,
            shuffle=self.segments.shuffle,
            quarantine=self.segments.quarantine,
            record=partial(_record, self.recorder, self.setup.data.train.inputs),
            report=self.recorder.report,
            show_mean=self.moving_mean.show,
            keep=self.recorder.keep,
        )

    def save_checkpoint(self) -> None:
        """Write a checkpoint of the finished run, from which it can be continued."""
        pending = self.snapshots.draft(self.coordinator.saved(time.monotonic()))
        if not self.snapshots.copy(pending) and (failure := pending.write()):
            self.console.say(failure)


def _coordinator(
    setup: RunSetup, policy: BatchPolicy, segments: RunSegments, recorder: RunRecorder
) -> Coordinator:
    """Return a coordinator at the start of a run, or at the resume point."""
    resume_point = setup.resume_point
    if resume_point is None:
        return Coordinator(setup.plan, policy)
    arrays, saved = resume_point.checkpoint.arrays, resume_point.saved
    segments.restore(arrays)
    recorder.resume(resume_point.history, resume_point.kept, arrays.get("kept"))
    arrays.clear()  # they take as much memory as the model with its optimizer slots
    recorder.record(
        "resumed",
        {
            "checkpoint": str(resume_point.checkpoint.path),
            "epoch": saved.epoch,
            "todo": [list(span.rows) for span in saved.todo],
            "rows": saved.rows,
            "seconds": saved.seconds,
        },
    )
    return Coordinator.resumed(setup.plan, policy, saved)


def _record(recorder: RunRecorder, inputs: Inputs, event: str, fields: Mapping[str, Any]) -> None:
    """Record an event; explain rows that are skipped often by the features of one of them."""
    if event == "rows_often_skipped":
        row = fields["skipped_row"]  # 1 + the number of one such row; 0: unknown
        largest = largest_feature(inputs, row - 1) if row else 0.0
        fields = {**fields, "warning": skipped_warning(**fields, largest=largest)}
    recorder.record(event, fields)
