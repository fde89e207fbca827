"""A run on this server, with worker processes."""

from contextlib import nullcontext
from dataclasses import dataclass, field
from shlex import quote

from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.launch.find import check_workers, find_workers
from hogbatch.run.platform import Platform
from hogbatch.run.processes import launched_workers, open_planes
from hogbatch.run.setup import RunSetup
from hogbatch.run.small import default_members, is_small
from hogbatch.run.this_process import train_here
from hogbatch.views.console import Console


@dataclass(frozen=True, slots=True)
class ThisServer(Platform):
    """Starts worker processes, unless the data are small; without `launch`, workers attach."""

    launch: bool
    callbacks: Callbacks = field(default_factory=Callbacks)
    side_by_side: bool = False  # others are trained at the same time, each on one thread

    def choose_workers(self, config: TrainConfig, console: Console) -> tuple[WorkerRequest, ...]:
        if not self.launch:
            return ()
        found = find_workers() if config.workers == "auto" else check_workers(config.workers)
        workers, line = found
        console.say(line)
        return workers

    def members(self, setup: RunSetup) -> int:
        config = setup.config
        if config.members is not None or not self.launch:
            return config.members or 1
        return default_members(config, setup.loaded, setup.plan, setup.network)

    def run(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> Outcome:
        setup, mean, segments = components.setup, components.moving_mean, components.segments
        config, run_dir = setup.config, setup.run_dir
        small = is_small(config, setup.plan, setup.network, setup.data.train_sizes)
        if self.side_by_side or (self.launch and small):
            return train_here(components, self.callbacks)
        sample_mean = setup.plan.stopping.average and not config.deterministic
        with (
            open_planes(run_dir, segments, components.directory.run_lock) as (router, published),
            launched_workers(workers, run_dir, config.pin) as launcher,
            mean.sampling() if sample_mean else nullcontext(),
        ):
            if not self.launch:
                attach = f"hogbatch worker cpu {quote(str(run_dir))}"
                components.console.say(f"waiting for workers: {attach}")
            components.recorder.reserve()  # while the workers start
            connections = router, launcher, self.callbacks, published.attached_by
            finish, totals = components.run_loop(*connections)
            published.close()
        return Outcome(finish, totals.with_refused(router.refused, router.rejected))
