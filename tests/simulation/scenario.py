"""Scenarios: simulated runs with random faults, drawn from a seed."""

from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import NamedTuple

from hogbatch.coordinator.plan import Limits, Plan, StoppingCriteria
from hogbatch.coordinator.saved_state import MAX_ROLLBACKS, SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.choose import find
from hogbatch.simulate.simulated_world import simulated_plan
from hogbatch.simulate.speed import Speed
from tests.simulation.audit import InvariantViolation, check
from tests.simulation.unreliable import (
    Conditions,
    UnreliableEngine,
    UnreliableWorker,
    UnreliableWorld,
)

HORIZON_S = 20_000.0  # of simulated time; a longer run counts as endless
STOPPED_WITHIN_S = 8.0  # of an interrupt: 4 s for leases in flight, then a check of the model


class ScenarioFailed(AssertionError):
    """A simulated run has violated an invariant."""


class Fault(NamedTuple):
    """A fault that happens at a given time."""

    at: float
    name: str


class DrawnWorker(NamedTuple):
    """A worker's speed, and the rows of the largest batch that fits; None: unlimited."""

    speed: Speed
    memory: int | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run and the faults that happen in it."""

    seed: int
    plan: Plan
    policy: str
    workers: tuple[DrawnWorker, ...]
    conditions: Conditions
    faults: tuple[Fault, ...]

    def resumed(self, saved: SavedState | None) -> Coordinator:
        """A coordinator that continues from a checkpoint, or starts without one."""
        policy = find(self.policy)(PolicySettings(beta=self.plan.beta))
        if saved is None:
            return Coordinator(self.plan, policy)
        return Coordinator.resumed(self.plan, policy, saved)


# Drawing -------------------------------------------------------------------------------------

WORKER_FAULTS = {  # name → relative frequency
    "die": 6,
    "stop briefly": 3,
    "stop": 2,
    "slow down": 3,
    "speed up": 3,
    "misreport": 1,
    "fail": 2,
    "leave": 2,
    "hang": 1,
}
FAULTS = WORKER_FAULTS | {
    "join": 4,
    "stop coordinator": 1,
    "corrupt model": 1,
    "kill coordinator": 2,
}


def draw_scenario(seed: int) -> Scenario:
    rng = Random(seed)
    workers = tuple(_draw_worker(rng) for _ in range(rng.randint(1, 10)))
    train_rows = int(10 ** rng.uniform(0, 4.2))
    peak = sum(worker.speed.peak for worker in workers)
    seconds = train_rows * (epochs := rng.randint(1, 4)) / peak
    conditions = _draw_conditions(rng, train_rows)
    return Scenario(
        seed=seed,
        plan=_draw_plan(rng, train_rows, epochs, len(workers)),
        policy=rng.choice(["adaptive", "adaptive", "hogbatch", "fixed"]),
        workers=workers,
        conditions=conditions,
        faults=_draw_faults(rng, 2.0 + 1.5 * seconds),
    )


def _draw_worker(rng: Random) -> DrawnWorker:
    gpu = rng.random() < 0.3
    speed = Speed(
        device="gpu" if gpu else "cpu",
        peak=10 ** (rng.uniform(3, 4.5) if gpu else rng.uniform(2, 4)),
        half=10 ** rng.uniform(1, 2.5) if gpu else 0.0,
        startup=rng.uniform(0.01, 1.0),
        spread=rng.choice([0.0, 0.05, 0.3]),
    )
    return DrawnWorker(speed, rng.choice([None, None, None, rng.randint(2, 200)]))


def _draw_held_out(rng: Random) -> tuple[int, int]:
    """Numbers of validation and test rows."""
    return rng.choice([0, rng.randint(1, 1000)]), rng.choice([0, rng.randint(1, 1000)])


def _draw_plan(rng: Random, train_rows: int, epochs: int, workers: int) -> Plan:
    smallest = rng.randint(1, 16)
    plan = simulated_plan(
        StoppingCriteria(
            epochs=epochs,
            max_seconds=rng.choice([None, None, None, rng.uniform(0.5, 5.0)]),
            target_loss=None,
            eval_seconds=rng.choice([None, 0.05, 0.5, 1e9]),
            keep=rng.choice(["best", "last"]),
            wait_for_workers=rng.choice([5.0, 60.0]),
            by_epoch=rng.random() < 0.3,
            average=rng.random() < 0.2,
            max_rows=rng.choice([None, None, None, rng.randint(1, epochs * train_rows)]),
            first_epoch=rng.random() < 0.3,
        ),
        Limits((smallest, smallest * rng.randint(1, 16)), rng.choice([None, None, (32, 512)])),
        (train_rows, *_draw_held_out(rng)),
        lease_seconds=10 ** rng.uniform(-2.5, -0.5),
        beta=rng.choice([1.0, 1.0, 0.5]),
        start_with=rng.choice([1, 1, workers, workers + 2]),
    )
    return replace(plan, checkpoint_seconds=rng.choice([float("inf"), 0.2, 1.0]))


def _draw_conditions(rng: Random, train_rows: int) -> Conditions:
    return Conditions(
        delay=10 ** rng.uniform(-5, -2),
        loss=rng.choice([0.0, 0.0, 0.0, 0.001, 0.003]),  # worse than ZeroMQ ever is
        shuffle_seconds=10 ** rng.uniform(-3, 0),
        copy_seconds=10 ** rng.uniform(-3, -0.3),
        write_seconds=10 ** rng.uniform(-3, 0),
        disk_full=rng.choice([0.0, 0.0, 0.5, 1.0]),
        restarts=rng.choice([None, None, None, 2]),
        bad_rows=rng.choice([0, 0, 0, rng.randint(1, 3)]) if train_rows > 10 else 0,
    )


def _draw_faults(rng: Random, seconds: float) -> tuple[Fault, ...]:
    names = rng.choices(list(FAULTS), list(FAULTS.values()), k=rng.choice([0, 3, 10, 30]))
    if rng.random() < 0.1:
        names.append("interrupt")
    return tuple(sorted(Fault(rng.uniform(0, seconds), name) for name in names))


# Running -------------------------------------------------------------------------------------


def run_scenario(scenario: Scenario) -> UnreliableWorld:
    """Simulate the run to its end; :class:`ScenarioFailed` if an invariant is violated."""
    world = UnreliableWorld(scenario.resumed(None), scenario.conditions, scenario.seed)
    for speed, memory in scenario.workers:
        world.start_worker(speed, world.rng.uniform(0, 0.5), memory)
    world.begin()
    injector = FaultInjector(world, scenario)
    for fault in scenario.faults:
        world.queue.at(fault.at, partial(injector.inject, fault.name))
    try:
        world.run(HORIZON_S)
        _check_end(world, scenario, injector)
    except AssertionError as error:
        raise ScenarioFailed(
            f"seed {scenario.seed}: at {world.queue.now:.3f} s: {error}; "
            f"reproduce with: scripts/simulate --seed {scenario.seed}"
        ) from error
    return world


@dataclass(slots=True)
class FaultInjector:
    """Injects faults by name."""

    world: UnreliableWorld
    scenario: Scenario
    interrupted_at: float | None = None
    corruptions: int = 0

    def inject(self, name: str) -> None:
        """Inject the fault, into a randomly chosen worker if it concerns one."""
        world = self.world
        if world.finish is not None:
            return
        if name not in WORKER_FAULTS:
            world.note(name)
            self._disturb(name)
        elif world.processes:
            worker = world.processes[world.rng.choice(list(world.processes))]
            world.note(f"{name}: process {worker.pid}")
            assert isinstance(worker, UnreliableWorker)
            self._harm(worker, name)

    def _harm(self, worker: UnreliableWorker, name: str) -> None:
        rng, engine = self.world.rng, worker.engine
        assert isinstance(engine, UnreliableEngine)
        match name:
            case "die":
                worker.exit("killed by SIGKILL")
            case "stop briefly":
                worker.stop(10 ** rng.uniform(-2, 0.5))
            case "stop":
                worker.stop(10 ** rng.uniform(0.5, 2))
            case "slow down":
                engine.slowdown = 10 ** rng.uniform(0, 1.5)
            case "speed up":
                engine.slowdown = 1.0
            case "misreport":
                engine.misreports = True
            case "fail":
                worker.later(0.0, worker.fail)
            case "leave":
                worker.later(0.0, worker.leave)
            case "hang":
                worker.hung = engine.hung = True

    def _disturb(self, name: str) -> None:
        world, rng, workers = self.world, self.world.rng, self.scenario.workers
        match name:
            case "join":
                speed, memory = rng.choice(workers)
                world.start_worker(speed, memory=memory)
            case "stop coordinator":
                world.stop_coordinator(10 ** rng.uniform(-1, 2))
            case "corrupt model":
                world.corrupted = True
                self.corruptions += 1
            case "kill coordinator":
                world.crash(self.scenario.resumed, after=0.5)
                left = rng.randint(1, len(workers))  # possibly fewer than before
                for speed, memory in workers[:left]:
                    world.start_worker(speed, 0.5 + rng.random(), memory)
            case "interrupt":
                self.interrupted_at = world.queue.now
                world.interrupt()


def _check_end(world: UnreliableWorld, scenario: Scenario, injector: FaultInjector) -> None:
    finish = world.finish
    if finish is None:
        raise InvariantViolation(f"the run did not end; it is in phase {world.state.phase}")
    if finish.status == "failed":
        gone = scenario.conditions.restarts is not None or world.left_for_good > 0
        excused = injector.corruptions >= MAX_ROLLBACKS if finish.diverged else gone
        check(excused, f"failed: {finish.reason}")
    if finish.status == "finished":
        epochs, every_row_bad = world.audit.epoch, not world.state.epochs.rows.rows
        stopping = scenario.plan.stopping
        all_rows = epochs == stopping.epochs or world.audit.rows == stopping.max_rows
        enough = all_rows or every_row_bad
        check(enough, f"finished after {epochs} epochs")
    crashed = any(fault.name == "kill coordinator" for fault in scenario.faults)
    if injector.interrupted_at is not None and not crashed and world.coordinator_stopped_for == 0.0:
        took = world.queue.now - injector.interrupted_at
        check(took < STOPPED_WITHIN_S, f"ended {took:.1f} s after the interrupt")
