"""The last figures of the workers of a server, from its summary.

The run has ended when a server has done its last lease, so what a server would tell about its
workers after that is not read.
"""

import msgspec

from hogbatch.wire.messages import (
    MAX_LISTED,
    Count,
    Fraction,
    ServerWorker,
    ServerWorkers,
    Threads,
    WorkerText,
)


class SummarisedWorker(msgspec.Struct):
    """The fields of a worker in summary.json that are used."""

    name: WorkerText
    device: WorkerText
    threads: Threads
    batch_size: Count
    rows: Count
    updates: Count
    busy: Fraction
    left_at: float | None

    @property
    def figures(self) -> ServerWorker:
        """What a server tells about such a worker."""
        return ServerWorker(
            name=self.name,
            device=self.device,
            threads=self.threads,
            state="trains" if self.left_at is None else "left",
            batch_size=self.batch_size,
            rows=self.rows,
            updates=self.updates,
            busy=round(self.busy, 4),
        )


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
