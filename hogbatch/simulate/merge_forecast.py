"""Forecast of the merges of a run on several servers, by simulation."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.coordinator.plan import Plan
from hogbatch.errors import UsageError
from hogbatch.machine.budget import byte_size
from hogbatch.simulate.audit import InvariantViolation
from hogbatch.simulate.scenario import ScenarioFailed
from hogbatch.simulate.simulated_servers import (
    SimulatedServers,
    check_models,
    merge_settings,
    servers_world,
    start_server,
)
from hogbatch.simulate.speed import Speed
from hogbatch.simulate.world import World
from hogbatch.wire.messages import FromServer, ToServer

CHECK_S = 0.05  # between two checks whether training has begun
MESSAGES = {each.__name__ for each in (*ToServer.__args__, *FromServer.__args__)}


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """What a simulation of several servers depends on, besides their speeds."""

    parameters: int  # of the model
    link: ServerLink
    share: float  # largest fraction of the time in which a merge is under way
    merge_rows: int | None  # of all servers between two merges; None: a five-hundredth of an epoch
    rule: str  # of merging
    lost: int = 0  # servers that die during the run


@dataclass(frozen=True, slots=True)
class MergeForecast:
    """The merges of a simulated run. `--json` prints it, so the field names are a format."""

    merges: int
    merge_seconds: float  # median
    share: float  # of the training time in which a merge is under way
    rows: float  # of all servers between two merges, median
    transfers: int  # between servers, in the last merge
    sent_bytes: float  # in it, by each server
    messages: float  # of the coordinator and all servers about a merge, mean
    lost_servers: int
    repeated_rows: int  # trained on again, because a server was lost


def run_servers(
    plan: Plan, groups: list[tuple[int, Speed]], seed: int, cluster: SimulatedCluster
) -> World[SimulatedServers]:
    """Simulate a run on servers to its end; ScenarioFailed if a row is lost or merged twice."""
    servers = sum(count for count, _ in groups)
    if cluster.lost >= servers:
        raise UsageError(f"--lost {cluster.lost}: expected fewer than the {servers} servers")
    settings = merge_settings(
        plan.train_rows, cluster.parameters, cluster.merge_rows, cluster.rule, cluster.share
    )
    world = servers_world(plan, settings, cluster.link, seed)
    for count, speed in groups:
        for _ in range(count):
            start_server(world, speed)
    world.begin()
    _lose_servers(world, cluster.lost, sum(count * speed.peak for count, speed in groups))
    try:
        world.run(float("inf"))
        check_models(world)
    except InvariantViolation as error:
        raise ScenarioFailed(f"seed {seed}: at {world.queue.now:.3f} s: {error}") from error
    return world


def _lose_servers(world: World[SimulatedServers], count: int, rows_per_second: float) -> None:
    """Let `count` servers die at random times of the training time that is expected."""
    if count and world.state.phase == "waiting":
        world.queue.after(CHECK_S, lambda: _lose_servers(world, count, rows_per_second))
        return
    stopping, rows = world.state.plan.stopping, world.state.plan.train_rows
    by_rows = float("inf") if stopping.epochs is None else stopping.epochs * rows / rows_per_second
    seconds = min(by_rows, stopping.max_seconds or float("inf"))
    for process in world.rng.sample(list(world.processes.values()), count):
        world.queue.after(world.rng.uniform(0.0, seconds), partial(process.exit, "killed"))


def merge_forecast(world: World[SimulatedServers]) -> MergeForecast | None:
    """What is known of the merges of a run that has ended; None if there were none."""
    effects, seconds = world.effects, world.state.progress.seconds(world.queue.now)
    if not effects.merges:
        return None
    last, count = effects.merges[-1], len(effects.merges)
    return MergeForecast(
        merges=count,
        merge_seconds=median(each.seconds for each in effects.merges),
        share=sum(each.seconds for each in effects.merges) / seconds,
        rows=median(each.rows for each in effects.merges),
        transfers=last.transfers,
        sent_bytes=last.sent_bytes,
        messages=sum(world.messages[name] for name in MESSAGES) / count,
        lost_servers=effects.lost,
        repeated_rows=effects.repeated_rows,
    )


def lines(found: MergeForecast) -> Iterator[str]:
    """The lines of the forecast."""
    yield (
        f"merges: {found.merges}, {1e3 * found.merge_seconds:.3g} ms each; a merge is under way "
        f"for {found.share:.1%} of the time"
    )
    yield (
        f"between two merges: {found.rows:,.0f} rows; a merge: {found.transfers:,} transfers "
        f"between servers, {byte_size(round(found.sent_bytes))} sent by each, "
        f"{found.messages:,.0f} messages of the coordinator"
    )
    if found.lost_servers:
        yield (
            f"{found.lost_servers} servers were lost; {found.repeated_rows:,} rows were trained on "
            "again"
        )
    yield "each row that was trained on is in the merged model once"
