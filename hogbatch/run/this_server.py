"""A run on this server, with worker processes."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.loop import coordinator_loop
from hogbatch.coordinator.plan import Plan
from hogbatch.events.crash import crash_report
from hogbatch.events.names import CRASH
from hogbatch.events.recorder import RefusalCounts
from hogbatch.machine.environment import read_environment
from hogbatch.machine.process import ProcessIdentity
from hogbatch.model.network import Network
from hogbatch.policy.choose import Factory
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.launch.find import check_workers, find_workers
from hogbatch.run.planning import is_small
from hogbatch.run.processes import launched_workers, open_planes
from hogbatch.run.this_process import train_here
from hogbatch.views.console import Console


@dataclass(frozen=True, slots=True)
class ThisServer:
    """Starts worker processes, unless the data are small; without `launch`, workers attach."""

    launch: bool
    callbacks: Callbacks = field(default_factory=Callbacks)

    @property
    def prefix(self) -> str:
        return ""

    @property
    def marks(self) -> Mapping[str, Any]:
        return {}

    @property
    def process(self) -> Mapping[str, Any]:
        return asdict(ProcessIdentity.own())

    @property
    def environment(self) -> Mapping[str, Any]:
        return read_environment()

    def now(self) -> float:
        return time.time()

    def choose_workers(self, config: TrainConfig, console: Console) -> tuple[WorkerRequest, ...]:
        if not self.launch:
            return ()
        found = find_workers() if config.workers == "auto" else check_workers(config.workers)
        console.say(found.line)
        return found.workers

    def policy(self, chosen: Factory) -> Factory:
        return chosen

    def plan(self, config: TrainConfig, plan: Plan, network: Network) -> Plan:
        return plan

    def in_memory(self, workers: tuple[WorkerRequest, ...]) -> tuple[WorkerRequest, ...]:
        return workers

    def run(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> Outcome:
        setup, mean, segments = components.setup, components.moving_mean, components.segments
        config, run_dir = setup.config, setup.run_dir
        if self.launch and is_small(config, setup.plan, setup.network, setup.data.train_sizes):
            return train_here(components, self.callbacks)
        sample_mean = setup.plan.stopping.average and not config.deterministic
        with (
            open_planes(config, run_dir, segments, components.directory.run_lock) as planes,
            launched_workers(workers, run_dir, config.pin) as launcher,
            mean.sampling() if sample_mean else nullcontext(),
        ):
            router, segment_server = planes
            if not self.launch:
                components.console.say(f"waiting for workers: hogbatch worker cpu {run_dir}")
            adapters = self.callbacks.wrapped(components.adapters(*planes, launcher))
            loop = coordinator_loop(components.coordinator, adapters, self.callbacks.interrupts)
            with crash_report(run_dir / CRASH, setup.settings, loop.received):
                finish, totals = loop.run()
            segment_server.close()  # rejects workers that are still connecting
        refused = RefusalCounts(router.refused, router.rejected + segment_server.refused)
        return Outcome(finish, totals, refused)
