"""What a crew of workers would do under a policy, without any of them."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean, median

from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.plan import StoppingCriteria
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.choose import choose
from hogbatch.run.planning import epochs_for, limits_for
from hogbatch.simulate.scenario import simulated_plan
from hogbatch.simulate.speed import Speed
from hogbatch.simulate.world import Conditions, World
from hogbatch.telemetry.records import WorkerRecord

SHOWN = 4  # changes of a batch in a table


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """Workers of one speed, taken together."""

    speed: Speed
    workers: list[WorkerRecord]


@dataclass(frozen=True, slots=True)
class Forecast:
    """A simulated run, looked back upon."""

    seconds: float  # of training
    rows: int
    kinds: list[WorkerKind]
    lease_messages_per_s: float  # Work and Done: median over the seconds
    most_lease_messages_per_s: int
    beats_per_s: float


def forecast(config: TrainConfig, crew: list[tuple[int, Speed]], rows: int, seed: int) -> Forecast:
    """Let `crew`, all ready at once, train on `rows` rows an epoch until `config` says stop."""
    workers = sum(count for count, _ in crew)
    plan = simulated_plan(
        StoppingCriteria(
            epochs=epochs_for(config, rows),
            max_seconds=config.max_seconds,
            target_loss=None,
            eval_seconds=math.inf,
            keep="last",
            wait_for_workers=math.inf,
        ),
        limits_for(config, rows),
        (rows, 0),
        config.lease_ms / 1000,
        config.beta,
        start_with=workers,
    )
    settings = PolicySettings(config.alpha, config.beta)
    world = World(plan, lambda: choose(config.policy, settings), Conditions(), seed)
    for count, speed in crew:
        for _ in range(count):
            world.start(speed)
    world.begin()
    world.run(math.inf)
    return _looked_back(world, crew)


def _looked_back(world: World, crew: list[tuple[int, Speed]]) -> Forecast:
    standing = world.state.totals(world.queue.now)
    speeds = {w.name: world.processes[w.pid].speed for w in world.state.workers.values()}
    kinds = [
        WorkerKind(speed, [record for record in standing.workers if speeds[record.name] is speed])
        for _, speed in crew
    ]
    per_second = _whole_seconds(world.lease_messages)
    return Forecast(
        seconds=standing.seconds,
        rows=standing.rows,
        kinds=kinds,
        lease_messages_per_s=median(per_second),
        most_lease_messages_per_s=max(per_second),
        beats_per_s=world.messages["Heartbeat"] / world.queue.now,
    )


def _whole_seconds(counted: Counter[int]) -> list[int]:
    """How many there were in each second from the first to the last, but these two if possible."""
    first, last = min(counted), max(counted)
    inner = range(first + 1, last) if last > first + 1 else range(first, last + 1)
    return [counted[second] for second in inner]


def table(seen: Forecast) -> Iterator[str]:
    """Lines for people."""
    yield (
        f"{seen.seconds:.1f} s of training, {seen.rows} rows, {seen.rows / seen.seconds:.0f} rows/s"
    )
    yield ""
    yield f"{'workers':28} {'updates':>10} {'fraction':>7} {'rows/s':>10} {'busy':>6}  batch of one"
    for kind in seen.kinds:
        records = kind.workers
        who = f"{len(records)} x {kind.speed.device}, {kind.speed.peak:g} rows/s"
        updates, rows = sum(w.updates for w in records), sum(w.rows for w in records)
        fraction, busy = sum(w.update_share for w in records), mean(w.busy for w in records)
        yield (
            f"{who:28} {updates:10} {fraction:7.1%} {rows / seen.seconds:10.0f} {busy:6.1%}  "
            + _short(records[0].batch_trace)
        )
    yield ""
    yield (
        f"messages: {seen.lease_messages_per_s:.0f} a second about leases "
        f"(at most {seen.most_lease_messages_per_s}), {seen.beats_per_s:.0f} heartbeats"
    )


def _short(trace: list[tuple[float, int]]) -> str:
    """The first batch sizes and the last, with the seconds at which they began."""
    shown = [f"{size} at {seconds:.1f} s" for seconds, size in trace]
    if len(shown) > SHOWN + 1:
        shown[SHOWN - 1 : -1] = [f"... ({len(trace)} in all)"]
    return ", ".join(shown)
