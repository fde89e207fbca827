"""A CPU worker: T threads share each lease, every one updating the shared model without locks.

    python -m workers.cpu RUN_DIR --threads 2

A lease is cut into one run of whole batches per thread. A thread that is done goes on with a part
of the next lease at once, so the threads never wait for one another.
"""

import os
import queue
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, TOTALS, Hyper
from hogbatch.wire.messages import Failed, Work
from workers.report import report
from workers.session import Assignment, Post, Profile
from workers.start import parser, run


def cut(rows: int, batch_size: int, threads: int) -> list[tuple[int, int]]:
    """Cut [0, rows) into at most `threads` runs of whole batches; only the last may be ragged."""
    batches = -(-rows // batch_size)
    edges = [min(rows, batches * t // threads * batch_size) for t in range(threads + 1)]
    return [(a, b) for a, b in pairwise(edges) if a < b]


@dataclass(slots=True)
class Tally:
    """The results of one lease's parts, until the last is in."""

    work: Work
    parts: int
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(TOTALS))
    seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, totals: NDArray[np.float64], seconds: float) -> bool:
        """Take in one part; True if it was the last."""
        with self.lock:
            self.totals += totals
            self.seconds += seconds
            self.parts -= 1
            return self.parts == 0


class Part(NamedTuple):
    """Rows [start, stop) of the epoch order or the test set, for one thread."""

    tally: Tally
    start: int
    stop: int


class CpuEngine:
    """Runs leases on `threads` threads outside the interpreter lock."""

    device = "cpu"

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.label = f"cpu:{threads}"
        self._parts: queue.SimpleQueue[Part] = queue.SimpleQueue()

    def prepare(self, assignment: Assignment, post: Post) -> Profile:
        from hogbatch.kernels.cpu import network  # compiles; nobody else needs Numba

        self._network = network
        self._assignment = assignment
        self._post = post
        shared = assignment.model
        plan = np.array(assignment.network.plan(), np.int64)
        self._model = network.Model(plan, shared.params, shared.first, shared.second, shared.steps)
        self._kinds = (
            LOSSES[assignment.network.loss],
            OPTIMIZERS[assignment.welcome.optimizer.name],
        )
        self._line = assignment.fence
        self._warm_up()
        for _ in range(self.threads):
            threading.Thread(target=self._serve, daemon=True).start()
        return ()

    def submit(self, work: Work) -> None:
        parts = cut(work.stop - work.start, work.batch_size, self.threads)
        tally = Tally(work, len(parts))
        for start, stop in parts:
            self._parts.put(Part(tally, work.start + start, work.start + stop))

    def _warm_up(self) -> None:
        """Compile, or load from the cache, by leases whose fence is already raised: no row is
        touched."""
        raised = int(self._line[0]) - 1
        self._compute(Work(0, "train", 0, 0, 1, 1, 0.0, raised), 0, 1, self._head())
        if self._assignment.test is not None:
            self._compute(Work(0, "evaluate", 0, 0, 1, 1, 0.0, raised), 0, 1, self._head())

    def _head(self) -> NDArray[np.int32]:
        return np.full(self._model.table[0, self._network.FAN_IN], -1, np.int32)

    def _serve(self) -> None:
        """One thread's life: the next part, whichever lease it is of."""
        head = self._head()
        while True:
            tally, start, stop = self._parts.get()
            began = time.perf_counter()
            try:
                totals = self._compute(tally.work, start, stop, head)
            except Exception as error:  # a kernel must not take the thread down in silence
                self._post(Failed(f"{type(error).__name__}: {error}"[:1000]))
                return
            if tally.add(totals, time.perf_counter() - began):
                self._post(report(tally.work, tally.totals, tally.seconds / self.threads))

    def _compute(
        self, work: Work, start: int, stop: int, head: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        totals = np.zeros(TOTALS)
        loss, optimizer = self._kinds
        lease = self._network.Lease(work.batch_size, loss, optimizer, work.fence)
        if work.task == "evaluate":
            test = self._assignment.test
            assert test is not None, "the coordinator hands out test rows only if there are any"
            rows = np.arange(start, stop)
            self._network.evaluate(
                self._model, test.inputs, test.labels, rows, lease, self._line, totals
            )
            return totals
        settings = self._assignment.welcome.optimizer
        hyper = Hyper(
            work.learning_rate, settings.l2, settings.momentum, settings.beta2, settings.epsilon
        )
        train, order = self._assignment.train, self._assignment.orders.of(work.epoch)
        self._network.train(
            self._model,
            train.inputs,
            train.labels,
            order[start:stop],
            lease,
            hyper,
            head,
            self._line,
            totals,
        )
        return totals


def main() -> None:
    """Attach a CPU worker."""
    arguments = parser("cpu", "Attach a CPU worker to a running job on this server.")
    arguments.add_argument(
        "--threads",
        type=int,
        default=len(os.sched_getaffinity(0)),
        metavar="T",
        help="threads (default: all cores this process may use)",
    )
    given = arguments.parse_args()
    if given.threads < 1:
        arguments.error(f"--threads must be at least 1; got {given.threads}")
    run(given.run_dir, CpuEngine(given.threads), given.launched)


if __name__ == "__main__":
    main()
