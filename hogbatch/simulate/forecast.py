"""Forecast of a run with given workers and policy, by simulation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean

from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.plan import StoppingCriteria
from hogbatch.coordinator.state import Coordinator
from hogbatch.errors import PolicyError
from hogbatch.events.records import WorkerRecord
from hogbatch.machine.printable import rounded
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.choose import find
from hogbatch.run.defaults import DAMPED_COST, critical_batch
from hogbatch.run.planning import epochs_for, limits_for
from hogbatch.simulate.simulated_world import SimulatedWorld, engine_of, simulated_plan
from hogbatch.simulate.speed import Speed

MAX_SHOWN = 4  # batch sizes of a worker in the table
MAX_EVENTS = 6  # below it


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """All workers of one speed."""

    speed: Speed
    workers: list[WorkerRecord]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The result of a simulated run. `--json` prints it, so the field names are a format."""

    seconds: float  # of training
    rows: int
    kinds: list[WorkerKind]
    events: list[tuple[float, str]]  # of parked workers, with seconds since the start


def forecast(
    config: TrainConfig, groups: list[tuple[int, Speed]], rows: int, seed: int
) -> Forecast:
    """Simulate training on `rows` rows per epoch; `groups` are numbers of workers and speeds.

    All workers become ready together. PolicyError if the user's policy fails.
    """
    stopping = StoppingCriteria(
        epochs=epochs_for(config, rows),
        max_seconds=config.max_seconds,
        target_loss=None,
        eval_seconds=math.inf,
        keep="last",
        wait_for_workers=math.inf,
    )
    limits, seconds = limits_for(config, rows), config.lease_ms / 1000
    workers_in_all = sum(count for count, _ in groups)
    plan = simulated_plan(stopping, limits, (rows, 0, 0), seconds, config.beta, workers_in_all)
    settings = PolicySettings(
        config.alpha,
        config.beta,
        critical_batch=config.critical_batch or critical_batch(rows, dense=True),
        stale_cost=DAMPED_COST,
        rows_between_pauses=(rows, rows),
    )
    world = SimulatedWorld(Coordinator(plan, find(config.policy)(settings)), seed)
    for count, speed in groups:
        for _ in range(count):
            world.start_worker(speed)
    world.begin()
    world.run(math.inf)
    if world.finish is not None and world.finish.by_policy:
        raise PolicyError(world.finish.reason)
    totals, roster = world.state.totals(world.queue.now), world.state.roster
    workers = [*roster.attached.values(), *roster.departed]
    speeds = {worker.name: engine_of(world.worker(worker.key)).speed for worker in workers}
    kinds = [
        WorkerKind(speed, [record for record in totals.workers if speeds[record.name] is speed])
        for _, speed in groups
    ]
    return Forecast(totals.seconds, totals.rows, kinds, world.events)


def table(result: Forecast) -> Iterator[str]:
    """The lines of the forecast as a table."""
    speed = result.rows / result.seconds
    yield f"{result.seconds:.1f} s of training, {result.rows} rows, {speed:.0f} rows/s"
    yield ""
    yield (
        f"{'workers':28} {'updates':>10} {'fraction':>8} {'rows/s':>10} {'busy':>6} {'parked':>6}  "
        "batch sizes"
    )
    for kind in result.kinds:
        records = kind.workers
        workers = f"{len(records)} x {kind.speed.device}, {rounded(kind.speed.peak)} rows/s"
        updates, rows = sum(w.updates for w in records), sum(w.rows for w in records)
        fraction, busy = sum(w.update_share for w in records), mean(w.busy for w in records)
        parked = mean(w.parked_seconds for w in records) / result.seconds
        yield (
            f"{workers:28} {updates:10} {fraction:8.1%} {rows / result.seconds:10.0f} {busy:6.1%} "
            f"{parked:6.1%}  " + _short(records[0].batch_trace)
        )
    if result.events:
        yield ""
    for at, what in result.events[:MAX_EVENTS]:
        yield f"{at:10.3f} s  {what}"
    if len(result.events) > MAX_EVENTS:
        yield f"{'':12}  ... ({len(result.events)} in all; --json prints every one)"


def _short(trace: list[tuple[float, int]]) -> str:
    """The first batch sizes and the last, with their training seconds."""
    shown = [f"{size} at {seconds:.1f} s" for seconds, size in trace]
    if len(shown) > MAX_SHOWN + 1:
        shown[MAX_SHOWN - 1 : -1] = [f"... ({len(trace)} in all)"]
    return ", ".join(shown)
