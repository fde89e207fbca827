"""Forecast of a run with given workers and policy, by simulation."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.plan import Plan, StoppingCriteria
from hogbatch.events.records import WorkerRecord
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.choose import choose
from hogbatch.run.defaults import critical_batch
from hogbatch.run.planning import epochs_for, limits_for
from hogbatch.simulate.merge_forecast import (
    MergeForecast,
    SimulatedCluster,
    lines,
    merge_forecast,
    run_servers,
)
from hogbatch.simulate.scenario import simulated_plan, simulated_world, speed_of, start_worker
from hogbatch.simulate.simulated_model import Conditions
from hogbatch.simulate.speed import Speed
from hogbatch.simulate.world import World

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
    lease_messages_per_s: float  # Lease and Done messages, median over the seconds
    most_lease_messages_per_s: int
    beats_per_s: float
    events: list[tuple[float, str]]  # of parked workers, with seconds since the start
    merges: MergeForecast | None = None  # of several servers


def forecast(
    config: TrainConfig,
    groups: list[tuple[int, Speed]],
    rows: int,
    seed: int,
    cluster: SimulatedCluster | None = None,
) -> Forecast:
    """Simulate training on `rows` rows per epoch; `groups` are numbers of workers and speeds.

    All workers become ready together. If they are servers, their models are merged as in `cluster`.
    """
    plan = _plan(config, sum(count for count, _ in groups), rows)
    if cluster is not None:
        servers = run_servers(plan, groups, seed, cluster)
        return _summarize(servers, groups, merge_forecast(servers))
    settings = PolicySettings(
        config.alpha,
        config.beta,
        critical_batch=config.critical_batch or critical_batch(rows, dense=True),
        rows_between_pauses=(rows, rows),
    )
    world = simulated_world(plan, choose(config.policy, settings), Conditions(), seed)
    for count, speed in groups:
        for _ in range(count):
            start_worker(world, speed)
    world.begin()
    world.run(math.inf)
    return _summarize(world, groups)


def _plan(config: TrainConfig, workers: int, rows: int) -> Plan:
    return simulated_plan(
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


def _summarize(
    world: World[Any], groups: list[tuple[int, Speed]], merges: MergeForecast | None = None
) -> Forecast:
    totals = world.state.totals(world.queue.now)
    roster = world.state.roster
    workers = [*roster.attached.values(), *roster.departed]
    speeds = {worker.name: speed_of(world.worker(worker.key)) for worker in workers}
    kinds = [
        WorkerKind(speed, [record for record in totals.workers if speeds[record.name] is speed])
        for _, speed in groups
    ]
    per_second = _per_second(world.lease_messages)
    return Forecast(
        seconds=totals.seconds,
        rows=totals.rows,
        kinds=kinds,
        lease_messages_per_s=median(per_second),
        most_lease_messages_per_s=max(per_second),
        beats_per_s=world.messages["Heartbeat"] / world.queue.now,
        events=world.events,
        merges=merges,
    )


def _per_second(counted: Counter[int]) -> list[int]:
    """Counts of all seconds, without the first and the last, which are incomplete, if possible."""
    first, last = min(counted), max(counted)
    inner = range(first + 1, last) if last > first + 1 else range(first, last + 1)
    return [counted[second] for second in inner]


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
        workers = f"{len(records)} x {kind.speed.device}, {kind.speed.peak:g} rows/s"
        updates, rows = sum(w.updates for w in records), sum(w.rows for w in records)
        fraction, busy = sum(w.update_share for w in records), mean(w.busy for w in records)
        parked = mean(w.parked_seconds for w in records) / result.seconds
        yield (
            f"{workers:28} {updates:10} {fraction:8.1%} {rows / result.seconds:10.0f} {busy:6.1%} "
            f"{parked:6.1%}  " + _short(records[0].batch_trace)
        )
    yield ""
    for at, what in result.events[:MAX_EVENTS]:
        yield f"{at:10.3f} s  {what}"
    if len(result.events) > MAX_EVENTS:
        yield f"{'':12}  ... ({len(result.events)} in all; --json prints every one)"
    if result.events:
        yield ""
    if result.merges is not None:
        yield from lines(result.merges)
    yield (
        f"messages per second: {result.lease_messages_per_s:.0f} about leases "
        f"(maximum {result.most_lease_messages_per_s}), {result.beats_per_s:.0f} heartbeats"
    )


def _short(trace: list[tuple[float, int]]) -> str:
    """The first batch sizes and the last, with their training seconds."""
    shown = [f"{size} at {seconds:.1f} s" for seconds, size in trace]
    if len(shown) > MAX_SHOWN + 1:
        shown[MAX_SHOWN - 1 : -1] = [f"... ({len(trace)} in all)"]
    return ", ".join(shown)
