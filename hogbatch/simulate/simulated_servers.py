"""Simulated runs on several servers: their models, and what is known of their merges."""

from collections import Counter
from dataclasses import replace
from functools import partial

from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.cluster.decisions.server_merges import ServerMerges
from hogbatch.cluster.decisions.settings import LEASE_S, MergeSettings
from hogbatch.coordinator.commands import Command, LoadServer, Record, Revoke
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import ServersMerged, WorkerLeft, WorkerLost
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.fixed import Fixed
from hogbatch.simulate.audit import Audit, check
from hogbatch.simulate.server_engine import Exchange, MergedModel, ServerEngine, TrainedRows
from hogbatch.simulate.simulated_world import Conditions, SimulatedMerge, SimulatedWorld
from hogbatch.simulate.speed import Speed
from hogbatch.simulate.worker import SimulatedWorker


class ServersWorld(SimulatedWorld):
    """A world whose workers are servers."""

    def __init__(
        self,
        plan: Plan,
        merging: MergeSettings,
        link: ServerLink,
        seed: int,
        restarts: int | None = 0,
    ) -> None:
        """`restarts` is the number of restarts of all servers together; None: unlimited."""
        plan = replace(plan, merging=partial(ServerMerges, merging), lease_seconds=LEASE_S)
        coordinator = Coordinator(plan, Fixed(PolicySettings()))
        super().__init__(coordinator, Conditions(restarts=restarts), seed, Audit(plan))
        self.actions = {**self.actions, LoadServer: self._load_server}
        self.exchange = Exchange(merging.parameters, link, self.queue)
        self.repeated_rows = 0  # trained on again, because a server was lost before their merge
        self.lost = 0  # servers
        self._model = MergedModel()  # of this process

    def start_worker(self, speed: Speed, after: float = 0.0, parts: tuple[int, ...] = ()) -> None:
        """Start a server of `speed`, which holds `parts` of divided data."""
        exchange = self.exchange
        self.start(lambda: ServerEngine(speed, self.rng, exchange=exchange, parts=parts), after)

    def _revoke(self, command: Revoke) -> None:
        super()._revoke(command)
        for process in list(self.processes.values()):
            if process.number == command.number:  # it must not take part in merges any more
                process.exit("ended by the coordinator")

    def copy(self) -> str | None:
        loaded = [each for each in self.exchange.servers.values() if each.alive]
        self._model = loaded[0].merged if loaded else self._model
        return super().copy()

    def _load_server(self, command: LoadServer) -> None:
        seconds = self.exchange.link.seconds(self.exchange.model_bytes)
        self.background("load", seconds, partial(self._load, command.worker, command.source))

    def _load(self, worker: str, source: str | None, now: float) -> list[Command]:
        """Give a server the model of another one, or of this process."""
        origin = None if source is None else self.worker(source)
        if origin is not None and not origin.alive:
            return self.state.model_written(worker, "the server with the model is lost", now)
        model = self._model if origin is None else engine_of(origin).merged
        engine_of(self.worker(worker)).merged = model
        return self.state.model_written(worker, None, now)

    def _record(self, command: Record) -> None:
        match command.event:
            case ServersMerged(merge=merge, rows=rows):
                self._merged(merge, rows)
            case WorkerLeft(reissued=spans):
                self.repeated_rows += sum(stop - start for start, stop in spans)
            case WorkerLost():
                self.lost += 1

    def _merged(self, merge: int, rows: int) -> None:
        last, seconds = self.exchange.last, self.queue.now - self.exchange.begin(merge)
        assert last is not None, "a merge has a sum"
        self.merges.append(SimulatedMerge(seconds, rows, last.transfers, last.sent))


def engine_of(worker: SimulatedWorker) -> ServerEngine:
    assert isinstance(worker.engine, ServerEngine)
    return worker.engine


def check_models(world: ServersWorld) -> None:
    """Check that all servers have one model, which contains each row that was trained on once."""
    engines = [engine_of(process) for process in world.processes.values()]
    check(bool(engines), "no server is left")
    models = {id(each.merged) for each in engines if each.merged.before}
    check(len(models) == 1, f"{len(engines)} servers end with {len(models)} models")
    unmerged = sum(bool(each.change) for each in engines)
    check(not unmerged, f"{unmerged} servers end with rows that are not merged")
    rows = engines[0].merged.rows()
    check_rows(rows, world.state.plan.train_rows, world.state.progress.rows)


def check_rows(rows: list[TrainedRows], train_rows: int, total: int) -> None:
    """Check that sorted `rows` are whole epochs and a part of one, `total` rows in all."""
    counts, end = Counter[int](), (0, 0)
    for epoch, start, stop in rows:
        check((epoch, start) >= end, f"row {start} of epoch {epoch} was merged twice")
        end = epoch, stop
        counts[epoch] += stop - start
    for epoch in range(max(counts, default=0)):
        check(counts[epoch] == train_rows, f"{counts[epoch]} rows of epoch {epoch} were merged")
    merged = counts.total()
    check(merged == total, f"{merged} rows were merged, {total} trained on")
