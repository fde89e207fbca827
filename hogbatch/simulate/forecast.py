"""Forecast of a run with given workers and policy, by simulation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean, median

from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.cluster.decisions.settings import MergeSettings
from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.plan import Plan, StoppingCriteria
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.records import WorkerRecord
from hogbatch.machine.budget import byte_size
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.choose import choose
from hogbatch.run.defaults import critical_batch
from hogbatch.run.planning import epochs_for, limits_for
from hogbatch.simulate.simulated_servers import ServersWorld, check_models
from hogbatch.simulate.simulated_world import (
    Conditions,
    SimulatedWorld,
    engine_of,
    simulated_plan,
)
from hogbatch.simulate.speed import Speed

MAX_SHOWN = 4  # batch sizes of a worker in the table
MAX_EVENTS = 6  # below it


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """All workers of one speed."""

    speed: Speed
    workers: list[WorkerRecord]


@dataclass(frozen=True, slots=True)
class MergeForecast:
    """The merges of several servers."""

    merges: int
    merge_seconds: float  # median
    share: float  # of the training time in which a merge is under way
    rows: float  # of all servers between two merges, median
    transfers: int  # between servers, in the last merge
    sent_bytes: float  # in it, by each server


@dataclass(frozen=True, slots=True)
class Forecast:
    """The result of a simulated run. `--json` prints it, so the field names are a format."""

    seconds: float  # of training
    rows: int
    kinds: list[WorkerKind]
    events: list[tuple[float, str]]  # of parked workers, with seconds since the start
    merges: MergeForecast | None = None  # of several servers


def forecast(
    config: TrainConfig, groups: list[tuple[int, Speed]], rows: int, seed: int
) -> Forecast:
    """Simulate training on `rows` rows per epoch; `groups` are numbers of workers and speeds.

    All workers become ready together.
    """
    settings = PolicySettings(
        config.alpha,
        config.beta,
        critical_batch=config.critical_batch or critical_batch(rows, dense=True),
        rows_between_pauses=(rows, rows),
    )
    coordinator = Coordinator(_plan(config, groups, rows), choose(config.policy, settings))
    world = SimulatedWorld(coordinator, Conditions(), seed)
    for count, speed in groups:
        for _ in range(count):
            world.start_worker(speed)
    world.begin()
    world.run(math.inf)
    return _summarize(world, groups)


def forecast_servers(
    config: TrainConfig,
    groups: list[tuple[int, Speed]],
    rows: int,
    seed: int,
    merging: MergeSettings,
    link: ServerLink,
) -> Forecast:
    """Simulate training on servers, whose models are merged.

    Raises InvariantViolation if a row is lost or merged twice.
    """
    world = ServersWorld(_plan(config, groups, rows), merging, link, seed)
    for count, speed in groups:
        for _ in range(count):
            world.start_server(speed)
    world.begin()
    world.run(math.inf)
    check_models(world)
    return _summarize(world, groups, _merges(world))


def _merges(world: ServersWorld) -> MergeForecast | None:
    merges, seconds = world.merges, world.state.progress.seconds(world.queue.now)
    if not merges:
        return None
    return MergeForecast(
        merges=len(merges),
        merge_seconds=median(each.seconds for each in merges),
        share=sum(each.seconds for each in merges) / seconds,
        rows=median(each.rows for each in merges),
        transfers=merges[-1].transfers,
        sent_bytes=merges[-1].sent_bytes,
    )


def _plan(config: TrainConfig, groups: list[tuple[int, Speed]], rows: int) -> Plan:
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
        start_with=sum(count for count, _ in groups),
    )


def _summarize(
    world: SimulatedWorld, groups: list[tuple[int, Speed]], merges: MergeForecast | None = None
) -> Forecast:
    totals = world.state.totals(world.queue.now)
    roster = world.state.roster
    workers = [*roster.attached.values(), *roster.departed]
    speeds = {worker.name: engine_of(world.worker(worker.key)).speed for worker in workers}
    kinds = [
        WorkerKind(speed, [record for record in totals.workers if speeds[record.name] is speed])
        for _, speed in groups
    ]
    return Forecast(
        seconds=totals.seconds,
        rows=totals.rows,
        kinds=kinds,
        events=world.events,
        merges=merges,
    )


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
    if result.events:
        yield ""
    for at, what in result.events[:MAX_EVENTS]:
        yield f"{at:10.3f} s  {what}"
    if len(result.events) > MAX_EVENTS:
        yield f"{'':12}  ... ({len(result.events)} in all; --json prints every one)"
    if (merges := result.merges) is not None:
        yield ""
        yield (
            f"merges: {merges.merges}, {1e3 * merges.merge_seconds:.3g} ms each; a merge is under "
            f"way for {merges.share:.1%} of the time"
        )
        yield (
            f"between two merges: {merges.rows:,.0f} rows; a merge: {merges.transfers:,} transfers "
            f"between servers, {byte_size(round(merges.sent_bytes))} sent by each"
        )
        yield "each row that was trained on is in the merged model once"


def _short(trace: list[tuple[float, int]]) -> str:
    """The first batch sizes and the last, with their training seconds."""
    shown = [f"{size} at {seconds:.1f} s" for seconds, size in trace]
    if len(shown) > MAX_SHOWN + 1:
        shown[MAX_SHOWN - 1 : -1] = [f"... ({len(trace)} in all)"]
    return ", ".join(shown)
