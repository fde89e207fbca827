"""The record of a worker's updates (`--record`), see :mod:`hogbatch.telemetry.update_log`."""

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.compute.assignment import Assignment
from hogbatch.kernels.contract import UPDATES
from hogbatch.telemetry.update_log import (
    RECORD,
    Kind,
    LogHeader,
    Records,
    UpdateLog,
    now,
    record,
)
from hogbatch.version import version
from hogbatch.wire.messages import Work

BLOCK = 4096  # maximum number of records that are written together; fewer at the end of a lease


def open_log(assignment: Assignment, device: str, threads: int) -> UpdateLog | None:
    """Create the file in which this worker records its updates; None in a run without --record."""
    if assignment.record_to is None:
        return None
    welcome = assignment.welcome
    header = LogHeader(
        version(), welcome.run, welcome.name, welcome.worker, device, threads, os.getpid()
    )
    return UpdateLog.create(assignment.record_to, header)


class BatchRecording(threading.local):
    """Records the updates of a CPU worker. Each thread sees the times of its own batches
    only; those of a team are recorded by its first member.

    Instead of a training loop, the worker calls the `recorded` one for each batch.
    """

    def __init__(self, log: UpdateLog) -> None:
        self._log = log
        self._begin = self._end = 0
        self._trained = False

    def joins(self, thread: int) -> None:
        """Record that `thread` copies the optimizer slots from shared memory now."""
        at = now()
        self._log.append(record(Kind.JOIN, at, at, thread=thread))

    def recorded(self, train: Callable[..., None]) -> Callable[..., None]:
        """`train`, the training loop of a thread or a team, for one batch with a record."""
        return partial(self._train, train)

    def _train(self, train: Callable[..., None], *arguments: Any) -> None:
        """Train on one batch; the last of `arguments` is the array of totals."""
        totals = arguments[-1]
        before = totals[UPDATES]
        self._begin = now()
        train(*arguments)
        self._end = now()
        self._trained = totals[UPDATES] > before

    def batches(self, work: Work, start: int, stop: int, thread: int) -> Iterator[tuple[int, int]]:
        """Yield the rows [first, last) of each batch of [start, stop), and record it afterwards.

        Ends after a batch that was not trained on, because the lease has been revoked.
        """
        size, block_rows = work.batch_size, BLOCK * work.batch_size
        for block in range(start, stop, block_rows):
            starts = np.arange(block, min(block + block_rows, stop), size)
            records, done = _updates(work, starts, stop, thread), 0
            begins, ends = records["begin"], records["end"]
            for first in starts.tolist():
                self._trained = False
                yield first, min(first + size, stop)
                if not self._trained:
                    break
                begins[done], ends[done] = self._begin, self._end
                done += 1
            self._log.append(records[:done])
            if done < len(records):
                return

    def builds(self, begin: int) -> None:
        """Record hash tables that were built since `begin`, and that threads use from now on."""
        self._log.append(record(Kind.BUILD, begin, now()))


def _updates(work: Work, starts: NDArray[np.int64], stop: int, thread: int) -> Records:
    """The records of batches of `work` that begin at `starts`, up to row `stop`, without times."""
    records = np.zeros(len(starts), RECORD)
    records["kind"], records["thread"], records["number"] = Kind.UPDATE, thread, work.lease
    records["start"], records["rows"] = starts, np.minimum(work.batch_size, stop - starts)
    records["batch_size"], records["learning_rate"] = work.batch_size, work.learning_rate
    records["epoch"], records["rollbacks"] = work.epoch, work.rollbacks
    return records


class IntervalRecording:
    """Records what happens to the replica of a GPU worker. Without a `log`, does nothing."""

    def __init__(self, log: UpdateLog | None) -> None:
        self._log = log

    def joins(self, *, by_rows: bool) -> None:
        """Record that the replica copies the optimizer slots from shared memory now.

        `by_rows` is whether it exchanges only the touched rows of a sparse first layer.
        """
        at = now()
        self._append(record(Kind.JOIN, at, at, number=by_rows))

    def fetched(self, begin: int) -> None:
        """Record that the shared model has been read since `begin`."""
        self._append(record(Kind.FETCH, begin, now()))

    def add(
        self,
        kind: Kind,
        begin: int,
        work: Work,
        rows: tuple[int, int],
        *,
        staleness: int = 0,
        weight: float = 0.0,
    ) -> None:
        """Record what has happened since `begin` with an interval: `rows` [start, stop) of `work`.

        A merge has a `staleness` and a `weight`.
        """
        if self._log is None:
            return
        start, stop = rows
        self._append(
            record(
                *(kind, begin, now()),
                start=start,
                rows=stop - start,
                batch_size=work.batch_size,
                learning_rate=work.learning_rate,
                epoch=work.epoch,
                rollbacks=work.rollbacks,
                number=work.lease,
                staleness=staleness,
                weight=weight,
            )
        )

    def _append(self, records: Records) -> None:
        if self._log is not None:
            self._log.append(records)
