"""Scenarios: simulated runs with random faults, drawn from a seed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from hogbatch.config.layers import DenseLayer
from hogbatch.coordinator.plan import Identity, Limits, Plan, StoppingCriteria
from hogbatch.coordinator.rollbacks import MAX_ROLLBACKS
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.errors import HogbatchError
from hogbatch.policy.base import BatchPolicy, PolicySettings
from hogbatch.policy.choose import choose
from hogbatch.policy.learning_rate import LearningRate
from hogbatch.simulate.audit import Audit, InvariantViolation
from hogbatch.simulate.link_quality import LinkQuality
from hogbatch.simulate.simulated_model import Conditions, SimulatedModel
from hogbatch.simulate.speed import Speed
from hogbatch.simulate.speed_engine import SpeedEngine
from hogbatch.simulate.worker import SimulatedWorker
from hogbatch.simulate.world import World
from hogbatch.wire.messages import Optimizer, Welcome

HORIZON_S = 20_000.0  # of simulated time; a longer run counts as endless
STOPPED_WITHIN_S = 8.0  # of an interrupt: 4 s for leases in flight, then a check of the model


class ScenarioFailed(HogbatchError):
    """A simulated run has violated an invariant."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that happens at a given time."""

    at: float
    name: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run and the faults that happen in it."""

    seed: int
    plan: Plan
    policy: str
    speeds: tuple[Speed, ...]
    conditions: Conditions
    faults: tuple[Fault, ...]

    def new_policy(self) -> BatchPolicy:
        """The batch policy, as at the start of a run."""
        return choose(self.policy, PolicySettings(beta=self.plan.beta))

    def resumed(self, saved: SavedState | None) -> Coordinator:
        """A coordinator that continues from a checkpoint, or starts again without one."""
        if saved is None:
            return Coordinator(self.plan, self.new_policy())
        return Coordinator.resumed(self.plan, self.new_policy(), saved)


def simulated_plan(
    stopping: StoppingCriteria,
    limits: Limits,
    rows: tuple[int, int],
    lease_seconds: float,
    beta: float,
    start_with: int = 1,
    checkpoint_seconds: float = float("inf"),
) -> Plan:
    """A plan for `rows` (training rows, test rows) that do not exist: nothing is computed."""
    optimizer = Optimizer("sgd", 0.0, 0.0, 0.0, 0.0)
    layers = (DenseLayer(1, 1, "linear"),)
    return Plan(
        identity=Identity("0", ""),
        training=Welcome(
            layers,
            "logistic",
            optimizer,
            "delta",
            1,
            "root",
            "float32",
        ),
        limits=limits,
        stopping=stopping,
        learning_rate=LearningRate(0.1),
        lease_seconds=lease_seconds,
        train_rows=rows[0],
        test_rows=rows[1],
        beta=beta,
        start_with=start_with,
        checkpoint_seconds=checkpoint_seconds,
    )


def simulated_world(
    plan: Plan,
    policy: BatchPolicy,
    conditions: Conditions,
    seed: int,
    audit: Audit | None = None,
) -> World[SimulatedModel]:
    """A world in which nothing is computed; add workers with :func:`start_worker`."""
    rng = Random(seed)
    model = SimulatedModel(conditions, plan.train_rows, seed, rng)
    return World(
        Coordinator(plan, policy),
        model,
        rng,
        conditions.network,
        conditions.restarts,
        audit,
        checkpoints=model,
    )


def start_worker(world: World[SimulatedModel], speed: Speed, after: float = 0.0) -> None:
    """Start a worker of `speed` after `after` seconds."""
    world.start(lambda: SpeedEngine(speed, world.rng, world.effects.deadly_row), after)


def speed_of(worker: SimulatedWorker) -> Speed:
    """The speed of a worker that :func:`start_worker` has started."""
    return engine_of(worker).speed


def engine_of(worker: SimulatedWorker) -> SpeedEngine:
    """The engine of a worker that :func:`start_worker` has started."""
    assert isinstance(worker.engine, SpeedEngine)
    return worker.engine


# Drawing -------------------------------------------------------------------------------------

FAULTS = {  # name → relative frequency
    "die": 6,
    "stop briefly": 3,
    "stop": 2,
    "slow down": 3,
    "speed up": 3,
    "misreport": 1,
    "fail": 2,
    "leave": 2,
    "join": 4,
    "hang": 1,
    "stop coordinator": 1,
    "corrupt model": 1,
    "kill coordinator": 2,
}


def draw_scenario(seed: int) -> Scenario:
    """Draw the scenario of `seed`."""
    rng = Random(seed)
    speeds = tuple(_draw_speed(rng) for _ in range(rng.randint(1, 10)))
    train_rows = int(10 ** rng.uniform(0, 4.2))
    seconds = train_rows * (epochs := rng.randint(1, 4)) / sum(speed.peak for speed in speeds)
    conditions = _draw_conditions(rng, train_rows)
    return Scenario(
        seed=seed,
        plan=_draw_plan(rng, train_rows, epochs, len(speeds)),
        policy=rng.choice(["adaptive", "adaptive", "hogbatch", "fixed"]),
        speeds=speeds,
        conditions=conditions,
        faults=_draw_faults(rng, 2.0 + 1.5 * seconds),
    )


def _draw_speed(rng: Random) -> Speed:
    gpu = rng.random() < 0.3
    return Speed(
        device="gpu" if gpu else "cpu",
        peak=10 ** (rng.uniform(3, 4.5) if gpu else rng.uniform(2, 4)),
        half=10 ** rng.uniform(1, 2.5) if gpu else 0.0,
        startup=rng.uniform(0.01, 1.0),
        spread=rng.choice([0.0, 0.05, 0.3]),
        memory=rng.choice([None, None, None, rng.randint(2, 200)]),
    )


def _draw_plan(rng: Random, train_rows: int, epochs: int, workers: int) -> Plan:
    smallest = rng.randint(1, 16)
    return simulated_plan(
        StoppingCriteria(
            epochs=epochs,
            max_seconds=rng.choice([None, None, None, rng.uniform(0.5, 5.0)]),
            target_loss=None,
            eval_seconds=rng.choice([None, 0.05, 0.5, 1e9]),
            keep=rng.choice(["best", "last"]),
            wait_for_workers=rng.choice([5.0, 60.0]),
            by_epoch=rng.random() < 0.3,
            average=rng.random() < 0.2,
        ),
        Limits((smallest, smallest * rng.randint(1, 16)), rng.choice([None, None, (32, 512)])),
        (train_rows, rng.choice([0, rng.randint(1, 1000)])),
        lease_seconds=10 ** rng.uniform(-2.5, -0.5),
        beta=rng.choice([1.0, 1.0, 0.5]),
        start_with=rng.choice([1, 1, workers, workers + 2]),
        checkpoint_seconds=rng.choice([float("inf"), 0.2, 1.0]),
    )


def _draw_conditions(rng: Random, train_rows: int) -> Conditions:
    network = LinkQuality(10 ** rng.uniform(-5, -2))
    if rng.random() < 0.3:  # worse than ZeroMQ ever is
        loss, duplication = rng.choice([0.0, 0.001, 0.003]), rng.choice([0.0, 0.01, 0.1])
        network = LinkQuality(network.delay, loss, duplication, ordered=rng.random() < 0.5)
    return Conditions(
        network,
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
    return tuple(sorted((Fault(rng.uniform(0, seconds), n) for n in names), key=lambda f: f.at))


# Running -------------------------------------------------------------------------------------


def run_scenario(scenario: Scenario) -> World[SimulatedModel]:
    """Simulate the run to its end; :class:`ScenarioFailed` if an invariant is violated."""
    plan, audit = scenario.plan, Audit(scenario.plan)
    world = simulated_world(plan, scenario.new_policy(), scenario.conditions, scenario.seed, audit)
    for speed in scenario.speeds:
        start_worker(world, speed, world.rng.uniform(0, 0.5))
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
            f"reproduce with: hogbatch simulate --faults --seed {scenario.seed}"
        ) from error
    return world


@dataclass(slots=True)
class FaultInjector:
    """Injects faults by name."""

    world: World[SimulatedModel]
    scenario: Scenario
    interrupted_at: float | None = None
    corruptions: int = 0

    def inject(self, name: str) -> None:
        """Inject the fault, into a randomly chosen worker if it concerns one."""
        world, rng = self.world, self.world.rng
        if world.finish is not None:
            return
        global_faults: dict[str, Callable[[], None]] = {
            "join": lambda: start_worker(world, rng.choice(self.scenario.speeds)),
            "stop coordinator": lambda: world.stop_coordinator(10 ** rng.uniform(-1, 2)),
            "corrupt model": self._corrupt,
            "kill coordinator": self._kill_coordinator,
            "interrupt": self._interrupt,
        }
        if name in global_faults:
            world.note(name)
            global_faults[name]()
        elif world.processes:
            worker = world.processes[rng.choice(list(world.processes))]
            world.note(f"{name}: process {worker.pid}")
            self._harm(worker, name)

    def _harm(self, worker: SimulatedWorker, name: str) -> None:
        rng, engine = self.world.rng, engine_of(worker)
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

    def _corrupt(self) -> None:
        self.world.effects.corrupted = True
        self.corruptions += 1

    def _kill_coordinator(self) -> None:
        world = self.world
        world.effects.restart(world.kill_coordinator(self.scenario.resumed, after=0.5))
        speeds = self.scenario.speeds
        for speed in speeds[: world.rng.randint(1, len(speeds))]:  # possibly fewer than before
            start_worker(world, speed, 0.5 + world.rng.random())

    def _interrupt(self) -> None:
        self.interrupted_at = self.world.queue.now
        self.world.interrupt()


def _check_end(world: World[SimulatedModel], scenario: Scenario, injector: FaultInjector) -> None:
    """Check that the run ended, and ended correctly."""
    finish = world.finish
    if finish is None:
        raise InvariantViolation(f"the run did not end; it is in phase {world.state.phase}")
    if finish.status == "failed":
        gone = scenario.conditions.restarts is not None or world.left_for_good > 0
        excused = injector.corruptions >= MAX_ROLLBACKS if finish.diverged else gone
        _require(excused, f"failed: {finish.reason}")
    if finish.status == "finished" and world.audit is not None:
        epochs, every_row_bad = world.audit.epoch, not world.state.epochs.rows.rows
        enough = epochs == scenario.plan.stopping.epochs or every_row_bad
        _require(enough, f"finished after {epochs} epochs")
    crashed = any(fault.name == "kill coordinator" for fault in scenario.faults)
    if injector.interrupted_at is not None and not crashed and world.coordinator_stopped_for == 0.0:
        took = world.queue.now - injector.interrupted_at
        _require(took < STOPPED_WITHIN_S, f"ended {took:.1f} s after the interrupt")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvariantViolation(otherwise)
