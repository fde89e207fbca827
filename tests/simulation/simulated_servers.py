"""Simulated runs on several servers: their models, and what is known of their merges."""

from dataclasses import dataclass, replace
from functools import partial

from hogbatch.coordinator.commands import Command, LoadServer, Record, Revoke
from hogbatch.coordinator.merge_pace import LEASE_S, MergeSettings
from hogbatch.coordinator.merges import Merges
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import ServersMerged
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.fixed import Fixed
from hogbatch.simulate.simulated_world import SimulatedWorld
from hogbatch.simulate.speed import Speed
from hogbatch.simulate.worker import SimulatedWorker
from tests.simulation.link import ServerLink
from tests.simulation.server_engine import Exchange, MergedModel, ServerEngine


@dataclass(frozen=True, slots=True)
class SimulatedMerge:
    """A merge of several servers that counts."""

    seconds: float  # under way, as the coordinator sees it
    rows: int
    transfers: int  # between servers
    sent_bytes: float  # by the server that sends most


class ServersWorld(SimulatedWorld):
    """A world whose workers are servers."""

    def __init__(
        self,
        plan: Plan,
        merging: MergeSettings,
        link: ServerLink,
        seed: int,
    ) -> None:
        plan = replace(plan, merging=partial(Merges, merging), lease_seconds=LEASE_S)
        coordinator = Coordinator(plan, Fixed(PolicySettings()))
        super().__init__(coordinator, seed)
        self.actions = {**self.actions, LoadServer: self._load_server}
        self.exchange = Exchange(merging.parameters, link, self.queue)
        self._model = MergedModel()  # of this process
        self.merges: list[SimulatedMerge] = []

    def start_worker(self, speed: Speed, after: float = 0.0, parts: tuple[int, ...] = ()) -> None:
        """Start a server of `speed`, which holds `parts` of divided data."""
        self.start(ServerEngine(speed, self.rng, exchange=self.exchange, parts=parts), after)

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
        if isinstance(event := command.event, ServersMerged):
            last, seconds = self.exchange.last, self.queue.now - self.exchange.begin(event.merge)
            assert last is not None, "a merge has a sum"
            self.merges.append(SimulatedMerge(seconds, event.rows, last.transfers, last.sent))


def engine_of(worker: SimulatedWorker) -> ServerEngine:
    assert isinstance(worker.engine, ServerEngine)
    return worker.engine
