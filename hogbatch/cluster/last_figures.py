"""The last figures of the workers of a server, from its summary.

The run has ended when a server has done its last lease, so what a server would tell about its
workers after that is not read.
"""

import msgspec
from msgspec.structs import asdict

from hogbatch.wire.messages import MAX_LISTED, ServerWorker, ServerWorkers, WorkerFigures


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
    """The figures in the summary of a server; None if it is damaged or missing."""
    try:
        workers = msgspec.json.decode(summary, type=ServerSummary).workers
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    workers.sort(key=lambda worker: worker.left_at is not None)  # those that have left come last
    listed = tuple(worker.figures for worker in workers[:MAX_LISTED])
    return ServerWorkers(listed, len(workers) - len(listed))
