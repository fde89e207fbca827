"""A run on this server, with worker processes."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from hogbatch.checkpoint.rundir import CRASH
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.adapters import Adapters
from hogbatch.coordinator.loop import Loop
from hogbatch.launch.base import Launcher
from hogbatch.launch.find import check_workers, find_workers
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.processes import launched_workers, open_planes
from hogbatch.run.recording import RunRecording
from hogbatch.store.segment_server import SegmentServer
from hogbatch.telemetry.console import Console
from hogbatch.telemetry.crash import crash_report
from hogbatch.telemetry.recorder import RefusalCounts
from hogbatch.wire.sockets import Router


@dataclass(frozen=True, slots=True)
class ThisServer:
    """Starts worker processes; without `launch`, waits for workers to attach."""

    launch: bool

    @property
    def prefix(self) -> str:
        return ""

    @property
    def marks(self) -> Mapping[str, Any]:
        return {}

    def now(self) -> float:
        return time.time()

    def choose_workers(self, config: TrainConfig, console: Console) -> tuple[WorkerRequest, ...]:
        if not self.launch:
            return ()
        found = find_workers() if config.workers == "auto" else check_workers(config.workers)
        console.say(found.line)
        return found.workers

    def in_memory(self, workers: tuple[WorkerRequest, ...]) -> tuple[WorkerRequest, ...]:
        return workers

    def run(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> Outcome:
        setup, mean, segments = components.setup, components.moving_mean, components.segments
        config, run_dir = setup.config, setup.run_dir
        sample_mean = setup.plan.stopping.average and not config.deterministic
        recording = RunRecording(run_dir, setup.identity) if config.record else None
        on_sample = None if recording is None else recording.sampled
        with (
            open_planes(config, run_dir, segments, components.directory.run_lock) as planes,
            launched_workers(workers, run_dir, config.pin) as launcher,
            recording or nullcontext(),
            mean.sampling(on_sample) if sample_mean else nullcontext(),
        ):
            router, segment_server = planes
            if not self.launch:
                components.console.say(f"waiting for workers: hogbatch worker cpu {run_dir}")
            adapters = _adapters(components, *planes, launcher)
            if recording is not None:
                adapters = recording.of(adapters)
            loop = Loop(components.coordinator, adapters)
            with crash_report(run_dir / CRASH, setup.settings, loop.received):
                finish, totals = loop.run()
            segment_server.close()  # rejects workers that are still connecting
        refused = RefusalCounts(router.refused, router.rejected + segment_server.refused)
        return Outcome(finish, totals, refused)


def _adapters(
    components: RunComponents, router: Router, segment_server: SegmentServer, launcher: Launcher
) -> Adapters:
    segments = components.segments
    return Adapters(
        endpoint=router,
        segment_server=segment_server,
        fences=segments.fences,
        processes=launcher,
        snapshots=components.snapshots,
        shuffle=segments.shuffle,
        quarantine=segments.quarantine,
        record=components.record,
        report=components.recorder.report,
        show_mean=components.moving_mean.show,
        keep=components.recorder.keep,
    )
