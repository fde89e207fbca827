"""Simulated runs on several servers: their models, and what is known of their merges."""

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.cluster.decisions.server_merges import ServerMerges
from hogbatch.cluster.decisions.settings import LEASE_S, SHARE, MergeSettings, rows_between_merges
from hogbatch.coordinator.commands import Actions, Command, LoadServer
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import AnyEvent, ServersMerged, WorkerLeft, WorkerLost
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.fixed import Fixed
from hogbatch.simulate.audit import Audit, InvariantViolation
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.server_engine import Exchange, MergedModel, ServerEngine, TrainedRows
from hogbatch.simulate.simulated_model import Conditions, SimulatedModel
from hogbatch.simulate.speed import Speed
from hogbatch.simulate.worker import SimulatedWorker
from hogbatch.simulate.world import World


@dataclass(frozen=True, slots=True)
class SimulatedMerge:
    """A merge that counts."""

    seconds: float  # under way, as the coordinator sees it
    rows: int
    transfers: int  # between servers
    sent_bytes: float  # by each server


@dataclass(slots=True)
class SimulatedServers(SimulatedModel):
    """The effects of commands on several servers."""

    exchange: Exchange = field(kw_only=True)
    merges: list[SimulatedMerge] = field(default_factory=list)
    repeated_rows: int = 0  # trained on again, because a server was lost before they were merged
    lost: int = 0  # servers
    _model: MergedModel = field(default_factory=MergedModel)  # of this process

    def copy(self) -> str | None:
        loaded = [each for each in self.exchange.servers.values() if each.alive]
        self._model = loaded[0].merged if loaded else self._model
        return self.not_finite_at

    def load_server(self, to: SimulatedWorker, source: SimulatedWorker | None) -> str | None:
        """Give server `to` the model of another one, or of this process; return why that failed."""
        if source is not None and not source.alive:
            return "the server that has the model is lost"
        engine_of(to).merged = self._model if source is None else engine_of(source).merged
        return None

    def record(self, event: AnyEvent) -> None:
        match event:
            case ServersMerged(merge=merge, rows=rows):
                self._merged(merge, rows)
            case WorkerLeft(reissued=spans):
                self.repeated_rows += sum(stop - start for start, stop in spans)
            case WorkerLost():
                self.lost += 1

    def _merged(self, merge: int, rows: int) -> None:
        exchange, last = self.exchange, self.exchange.last
        seconds = exchange.queue.now - exchange.begin(merge)
        assert last is not None, "a merge has a sum"
        self.merges.append(SimulatedMerge(seconds, rows, last.transfers, last.sent))


def server_actions(world: World[SimulatedServers]) -> Actions:
    """The actions for servers."""
    effects = world.effects

    def begin_load(command: LoadServer) -> None:
        seconds = effects.exchange.link.seconds(effects.exchange.model_bytes)
        world.background("load", seconds, partial(load, command))

    def load(command: LoadServer, now: float) -> list[Command]:
        origin = None if command.source is None else world.worker(command.source)
        failure = effects.load_server(world.worker(command.worker), origin)
        return world.state.model_written(command.worker, failure, now)

    return {LoadServer: begin_load}


def engine_of(worker: SimulatedWorker) -> ServerEngine:
    """The engine of a worker that is a server."""
    assert isinstance(worker.engine, ServerEngine)
    return worker.engine


def merge_settings(
    train_rows: int,
    parameters: int,
    merge_rows: int | None = None,
    rule: str = "adasum",
    share: float = SHARE,
) -> MergeSettings:
    """The settings of a run on several servers; those without a value are the usual ones."""
    return MergeSettings(
        merge_rows or rows_between_merges(train_rows),
        parameters,
        rule,  # type: ignore[arg-type]  # one of its choices
        share=share,
    )


def servers_world(
    plan: Plan,
    merging: MergeSettings,
    link: ServerLink,
    seed: int,
    restarts: int | None = 0,
) -> World[SimulatedServers]:
    """A world whose workers are servers; add them with :func:`start_server`.

    `restarts` is the number of restarts of all servers together; None: unlimited.
    """
    plan = replace(plan, merging=partial(ServerMerges, merging), lease_seconds=LEASE_S)

    coordinator = Coordinator(plan, Fixed(PolicySettings()))
    rng, queue = Random(seed), EventQueue()
    conditions = Conditions(restarts=restarts)
    exchange = Exchange(merging.parameters, link, queue)
    model = SimulatedServers(conditions, plan.train_rows, seed, rng, exchange=exchange)
    network, audit = conditions.network, Audit(plan)
    world = World(coordinator, model, rng, network, restarts, audit, queue, model)
    world.actions = {**world.actions, **server_actions(world)}
    return world


def start_server(
    world: World[SimulatedServers], speed: Speed, after: float = 0.0, parts: tuple[int, ...] = ()
) -> None:
    """Start a server of `speed`, which holds `parts` of divided data, after `after` seconds."""
    exchange = world.effects.exchange
    world.start(lambda: ServerEngine(speed, world.rng, exchange=exchange, parts=parts), after)


def check_models(world: World[SimulatedServers]) -> None:
    """Check that all servers have one model, which contains each row that was trained on once."""
    engines = [engine_of(process) for process in world.processes.values()]
    if not engines:
        raise InvariantViolation("no server is left")
    models = {id(each.merged) for each in engines if each.merged.before}
    if len(models) != 1:
        raise InvariantViolation(f"{len(engines)} servers end with {len(models)} models")
    if unmerged := sum(bool(each.change) for each in engines):
        raise InvariantViolation(f"{unmerged} servers end with rows that are not merged")
    rows = engines[0].merged.rows()
    check_rows(rows, world.state.plan.train_rows, world.state.progress.rows)


def check_rows(rows: list[TrainedRows], train_rows: int, total: int) -> None:
    """Check that sorted `rows` are whole epochs and a part of one, `total` rows in all."""
    counts, end = Counter[int](), (0, 0)
    for epoch, start, stop in rows:
        if (epoch, start) < end:
            raise InvariantViolation(f"row {start} of epoch {epoch} was merged twice")
        end = epoch, stop
        counts[epoch] += stop - start
    for epoch in range(max(counts, default=0)):
        if counts[epoch] != train_rows:
            raise InvariantViolation(f"{counts[epoch]} rows of epoch {epoch} were merged")
    if counts.total() != total:
        raise InvariantViolation(f"{counts.total()} rows were merged, {total} trained on")
