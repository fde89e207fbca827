"""A run on a simulated server: the real coordinator, policies, data and gradients.

Only the clock, the network and the speeds of the processors are simulated. One core of this machine
computes all batches, in the order and with the staleness that the simulated clock gives them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.commands import Actions, Measure
from hogbatch.coordinator.interrupts import Interrupts
from hogbatch.data.batch import Examples
from hogbatch.errors import UsageError
from hogbatch.events.crash import crash_report
from hogbatch.events.names import CRASH
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.machine.allocator import keep_freed_memory
from hogbatch.machine.topology import Topology, assign, physical_cores, training_threads
from hogbatch.model.network import Network
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.platform import Platform
from hogbatch.run.setup import RunSetup
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.hardware.cpu_cost import CpuCost
from hogbatch.simulate.hardware.description import Cpu, Server, ServerGpu
from hogbatch.simulate.hardware.gpu_cost import GpuCost
from hogbatch.simulate.hardware.workload import Workload
from hogbatch.simulate.rehearsal.concurrent_model import ConcurrentModel
from hogbatch.simulate.rehearsal.cores import Cores, Noise
from hogbatch.simulate.rehearsal.cpu import RehearsedCpu
from hogbatch.simulate.rehearsal.gpu import RehearsedGpu
from hogbatch.simulate.worker import SimulatedEngine
from hogbatch.simulate.world import World
from hogbatch.store.average import INTERVAL_S, MAX_LOAD
from hogbatch.store.merge import MERGE_RULES
from hogbatch.views.console import Console
from hogbatch.wire.messages import Welcome
from hogbatch.workers.compute.teams import Teams, computes_together, divide

SPREAD = 0.05  # standard deviation of the time of a batch, as a fraction of it
THREADS_OF_HOST = 2  # of gpu:host: training and exchange
ORDER_BYTES = 64  # random accesses to a permutation of int64: a cache line for each row
PASSES_OF_A_SAMPLE = 3  # over the parameters: a sample of the moving mean reads two, writes one


class RehearsedWorld(World):
    """A world that carries out commands with the components of a run."""

    def __init__(
        self, components: RunComponents, copy_speed: float, rng: Random, queue: EventQueue
    ) -> None:
        """`copy_speed` is that of the core that copies, in bytes per second."""
        super().__init__(components.coordinator, rng, queue)
        self._components, self._copy_speed = components, copy_speed
        own: Actions = {Measure: self._measure}
        self.actions = {**self.actions, **components.actions(lambda: self.queue.now), **own}

    def _measure(self, command: Measure) -> None:
        metrics = self._components.metrics.measure(command.set, command.metric)
        self.background("copy", 0.0, partial(self.state.measured, metrics))

    def fence(self, number: int) -> int:
        return self._components.segments.fences.current(number)

    def write_order(self, epoch: int, without: int) -> float:
        self._components.segments.shuffle(epoch, without)
        return self._components.setup.plan.train_rows * ORDER_BYTES / self._copy_speed

    def copy_seconds(self) -> float:
        model = self._components.segments.model
        arrays = model.params, model.first, model.second
        return sum(array.nbytes for array in arrays) / self._copy_speed

    def copy(self) -> str | None:
        return self._components.snapshots.copy()


class Rehearsal(Platform):
    """A platform that simulates `server`.

    `observe` is called after every simulated event, with the simulated seconds, and the rows that
    were trained on.
    """

    prefix = "rehearsed: "

    def __init__(
        self,
        server: Server,
        observe: Callable[[float, int], object] = lambda seconds, rows: None,
    ) -> None:
        self._server, self._observe = server, observe
        self._queue = EventQueue()

    @property
    def marks(self) -> Mapping[str, Any]:
        return {"rehearsed": self._server.name}

    @property
    def origin(self) -> Mapping[str, Any]:
        return {}  # two rehearsals with one seed have equal events

    def now(self) -> float:
        return self._queue.now

    def choose_workers(self, config: TrainConfig, console: Console) -> tuple[WorkerRequest, ...]:
        requests = requested_workers(self._server, config)
        console.say(
            f"all times below are those of a simulated server, {self._server.name} "
            f"({self._server.about})"
        )
        console.say(f"workers: {','.join(map(str, requests))}")
        return requests

    def in_memory(self, workers: tuple[WorkerRequest, ...]) -> tuple[WorkerRequest, ...]:
        return tuple(replace(w, ordinal="host") if w.device == "gpu" else w for w in workers)

    def run(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> Outcome:
        world = self._begin(components, workers)
        interrupts, setup = Interrupts(), components.setup
        crashes = crash_report(setup.run_dir / CRASH, setup.settings, ())
        with interrupts.counted(), crashes:
            while world.finish is None and self._queue.step():
                if interrupts.count:
                    world.interrupt()
                self._observe(self._queue.now, components.coordinator.progress.rows)
        assert world.finish is not None, "the coordinator ticks until it finishes"
        return Outcome(world.finish, world.state.totals(self._queue.now))

    def _begin(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> World:
        keep_freed_memory()  # a batch of 512 rows on 50,000 outputs allocates 200 MB
        setup, cpu = components.setup, self._server.cpu
        training, network, train = setup.plan.training, setup.network, setup.loaded.train
        teams = teams_of(cpu, workers, training, network, train, pin=setup.config.pin)
        alone = len(workers) == 1 and teams[0] is not None and teams[0].count == 1
        shared = components.segments.model
        model = ConcurrentModel(shared, network, train, lsh=training.lsh, alone=alone)
        rng = Random(setup.config.seed)
        world = RehearsedWorld(components, cpu.memory.copy_speed, rng, self._queue)
        self._start_workers(world, components, model, workers, teams)
        world.begin()
        if setup.plan.stopping.average:
            self._keep_sampling(components, cpu.memory.copy_speed)
        return world

    def _start_workers(
        self,
        world: World,
        components: RunComponents,
        model: ConcurrentModel,
        workers: Sequence[WorkerRequest],
        teams: Sequence[Teams | None],
    ) -> None:
        """Start `workers`, of which those with `teams` are CPU workers."""
        setup, cpu, assign = components.setup, self._server.cpu, components.assign
        workload, noise = workload_of(setup), Noise(world.rng, SPREAD)
        cores = Cores(cpu.threads, cpu.slice_seconds, self._queue)
        threads = sum(each.threads for each in teams if each)

        engine: SimulatedEngine
        first = 0
        for request, own in zip(workers, teams, strict=True):
            if own is None:
                gpu = described_gpu(self._server, request)
                of_gpu = GpuCost(gpu, workload)
                shares_core = gpu.ordinal == "host" and threads + THREADS_OF_HOST > cpu.threads
                engine = RehearsedGpu(str(request), of_gpu, assign, noise, shares_core=shares_core)
            else:
                cost = CpuCost(cpu, workload, threads, own.members)
                shared = model, assign, noise, cores
                numbers = first, first + threads  # of the builder: after those of all workers
                engine = RehearsedCpu(request.threads, own, cost, *shared, *numbers)
                first += own.threads
            world.start(engine)

    def _keep_sampling(self, components: RunComponents, copy_speed: float) -> None:
        """Sample the moving mean as `MovingMean.sampling` does, at simulated times."""
        nbytes = PASSES_OF_A_SAMPLE * components.segments.model.params.nbytes
        pause = max(INTERVAL_S, nbytes / copy_speed / MAX_LOAD)

        def sample() -> None:
            components.moving_mean.sample_change()
            self._queue.after(pause, sample)

        self._queue.after(pause, sample)


def workload_of(setup: RunSetup) -> Workload:
    """The sizes of the network and the training rows of a run."""
    training = setup.plan.training
    spec, rule = OPTIMIZERS[setup.config.optimizer], MERGE_RULES[setup.config.merge]
    return Workload.of(
        setup.network,
        setup.loaded.train,
        spec.slots,
        training.lsh,
        may_densify=spec.ignores_zeros and training.optimizer.l2 == 0.0,
        exchanges_sums=spec.summed_slots and rule.additive,
    )


def requested_workers(server: Server, config: TrainConfig) -> tuple[WorkerRequest, ...]:
    """The workers of `config` on `server`; by default those that a real run would start there.

    UsageError if `server` does not have a requested GPU, or if a GPU is requested twice.
    """
    if config.workers == "auto":
        gpus = [gpu for gpu in server.gpus if gpu.ordinal != "host"]
        threads = training_threads(server.cpu.threads, server.cpu.cores, len(gpus))
        requests = [WorkerRequest("cpu", threads=threads)]
        return (*requests, *(WorkerRequest("gpu", ordinal=gpu.ordinal) for gpu in gpus))
    wanted = [request for request in config.workers if request.device == "gpu"]
    for number, request in enumerate(wanted):
        described_gpu(server, request)
        if request in wanted[:number]:
            raise UsageError(f"--workers {request} is given twice; a GPU has one worker")
    return config.workers


def described_gpu(server: Server, request: WorkerRequest) -> ServerGpu:
    """The GPU of a worker; UsageError if `server` does not have it."""
    for gpu in server.gpus:
        if gpu.ordinal == request.ordinal:
            return gpu
    known = ", ".join(f"gpu:{gpu.ordinal}" for gpu in server.gpus) or "no GPU"
    raise UsageError(f"--workers {request}: {server.name} has {known}; omit it")


def teams_of(
    cpu: Cpu,
    workers: Sequence[WorkerRequest],
    training: Welcome,
    network: Network,
    train: Examples,
    *,
    pin: bool,
) -> list[Teams | None]:
    """The teams of each of `workers` on `cpu`, as real workers would divide their threads.

    None for a GPU worker. `pin` is whether threads are pinned if there are enough logical cores.
    """
    layers, hashed = network.layer_views(), training.lsh is not None
    loop = loop_for(layers, sparse=train.sparse, hashed=hashed, backbone=network.placed_backbone())
    wanted = training.cpu_teams
    together = computes_together(wanted, loop.name, layers, train)
    threads = [worker.threads for worker in workers]
    cores = pinned_cores(cpu, threads) if pin else [0 for _ in threads]
    return [
        divide(wanted, worker.threads, count, together=together) if worker.device == "cpu" else None
        for worker, count in zip(workers, cores, strict=True)
    ]


def pinned_cores(cpu: Cpu, threads: Sequence[int]) -> list[int]:
    """The physical cores of workers with these numbers of threads; 0 if they cannot be pinned."""
    cores = range(cpu.threads)
    siblings = tuple(frozenset(cores[first :: cpu.cores]) for first in range(cpu.cores))
    every = frozenset(cores)
    topology = Topology(every, (every,), siblings)
    return [physical_cores(topology, own) for own in assign(topology, threads)]
