"""The workers of one of several servers, for display.

A server tells the coordinator of all servers about its own workers, and that coordinator records
what it is told. No decision depends on it.
"""

from typing import Final

from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import Worker
from hogbatch.wire.messages import MAX_LISTED, ServerWorkers, WorkerFigures

FIGURES_FILE: Final = "figures"  # in the run directory of a server: its last ServerWorkers
FIGURES_PER_S: Final = 10  # messages of all servers together; with more servers, each sends fewer


def figures_of(roster: Roster, seconds: float) -> ServerWorkers:
    """The figures of the workers in `roster` at training second `seconds`."""
    workers = [*roster.attached.values(), *roster.departed]
    listed = (_figures(worker, seconds) for worker in workers[:MAX_LISTED])
    return ServerWorkers(tuple(listed), max(0, len(workers) - MAX_LISTED))


def _figures(worker: Worker, seconds: float) -> WorkerFigures:
    return WorkerFigures(
        name=worker.name,
        device=worker.device,
        threads=worker.threads,
        state=_state(worker),
        batch_size=worker.batch_size,
        rows=worker.rows,
        updates=worker.updates,
        busy=round(worker.busy(seconds), 4),
    )


def _state(worker: Worker) -> str:
    if worker.left_at is not None:
        return "left"
    if not worker.ready:
        return "compiles" if worker.compiling else "starts"
    return "trains" if worker.trains else "parked"
