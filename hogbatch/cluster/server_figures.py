"""The workers of one of several servers, for display.

A server tells the coordinator of all servers about its own workers, and that coordinator records
what it is told. No decision depends on it.
"""

from typing import Final

import msgspec
from msgspec.structs import asdict

from hogbatch.coordinator.commands import Command, Record
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import Worker
from hogbatch.wire.messages import (
    MAX_LISTED,
    ServerWorker,
    ServerWorkers,
    WorkerFigures,
    WorkerState,
)

EVENT: Final = "server_workers"
RECORD_S: Final = 0.5  # between two records about one server
FIGURES_PER_S: Final = 10  # messages of all servers together; with more servers, each sends fewer


def seconds_between(servers: int) -> float:
    """Seconds between two messages of one of `servers` servers about its workers, at least."""
    return max(1.0, servers / FIGURES_PER_S)


def figures_of(roster: Roster, seconds: float) -> ServerWorkers:
    """The figures of the workers in `roster` at training second `seconds`."""
    workers = [*roster.attached.values(), *roster.departed]
    listed = (_figures(worker, seconds) for worker in workers[:MAX_LISTED])
    return ServerWorkers(tuple(listed), max(0, len(workers) - MAX_LISTED))


def _figures(worker: Worker, seconds: float) -> ServerWorker:
    return ServerWorker(
        name=worker.name,
        device=worker.device,
        threads=worker.threads,
        state=_state(worker),
        batch_size=worker.batch_size,
        rows=worker.rows,
        updates=worker.updates,
        busy=round(worker.busy(seconds), 4),
    )


def _state(worker: Worker) -> WorkerState:
    if worker.left_at is not None:
        return "left"
    if not worker.ready:
        return "compiles" if worker.compiling else "starts"
    return "trains" if worker.trains else "parked"


def record_figures(server: Worker, message: ServerWorkers, now: float) -> list[Command]:
    """Record what `server` tells about its workers, unless that was done just before."""
    if now - server.figures_at < RECORD_S:
        return []
    server.figures_at = now
    return [Record(EVENT, event_fields(server.name, message))]


def event_fields(server: str, message: ServerWorkers) -> dict[str, object]:
    """The fields of the event about the workers of `server`."""
    workers = [asdict(worker) for worker in message.workers]
    return {"worker": server, "workers": workers, "others": message.others}


class SummarisedWorker(WorkerFigures, frozen=True):
    """The fields of a worker in summary.json that are used."""

    left_at: float | None

    @property
    def figures(self) -> ServerWorker:
        """What a server tells about such a worker."""
        fields = asdict(self) | {"busy": round(self.busy, 4)}
        left = fields.pop("left_at") is not None
        return ServerWorker(**fields, state="left" if left else "trains")


class ServerSummary(msgspec.Struct):
    """The part of a server's summary.json that is used."""

    workers: list[SummarisedWorker]


def last_figures(summary: bytes) -> ServerWorkers | None:
    """The figures in the summary of a server; None if it is damaged or missing.

    The run has ended when a server has done its last lease, so what a server would tell about its
    workers after that is not read.
    """
    try:
        workers = msgspec.json.decode(summary, type=ServerSummary).workers
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    workers.sort(key=lambda worker: worker.left_at is not None)  # those that have left come last
    listed = tuple(worker.figures for worker in workers[:MAX_LISTED])
    return ServerWorkers(listed, len(workers) - len(listed))
