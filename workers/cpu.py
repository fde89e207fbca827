"""A CPU worker: T threads share each lease, every one updating the shared model without locks.

    python -m workers.cpu RUN_DIR --threads 2
    python -m workers.cpu RUN_DIR --cores 0,2       a thread for each, which stays there

A lease is cut into one run of whole batches per thread. A thread that is done goes on with a part
of the next lease at once, so the threads never wait for one another.
"""

import argparse
import logging
import os
import queue
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, TOTALS, Hyper, add_totals
from hogbatch.machine.linux import read_topology
from hogbatch.machine.topology import Cores, parse_cores, show_cores
from hogbatch.model.footprint import cpu_worker, expect_room
from hogbatch.wire.messages import Work
from workers.report import report
from workers.session import Assignment, Post, Profile, problem_of
from workers.start import parser, run
from workers.thread_state import ThreadState, copy_slots, thread_state

if TYPE_CHECKING:
    from workers.hashed import HashedLayer


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
            add_totals(totals, self.totals)
            self.seconds += seconds
            self.parts -= 1
            return self.parts == 0


class Part(NamedTuple):
    """Rows [start, stop) of the epoch order or the test set, for one thread."""

    tally: Tally
    start: int
    stop: int


class CpuEngine:
    """Runs leases on `threads` threads outside the interpreter lock, each on its core if given."""

    device = "cpu"

    def __init__(self, threads: int, cores: Cores = ()) -> None:
        self.threads = threads
        self._cores = cores
        self.label = f"cpu:{threads}"
        self._parts: queue.SimpleQueue[Part] = queue.SimpleQueue()
        self._hashed: HashedLayer | None = None  # if the output layer is hashed

    def prepare(self, assignment: Assignment, post: Post) -> Profile:
        expect_room(cpu_worker(problem_of(assignment), self.threads), f"worker {self.label}")
        from hogbatch.kernels.cpu import network  # compiles; nobody else needs Numba

        self._network, self._train, self._evaluate = network, network.train, network.evaluate
        self._assignment = assignment
        self._post = post
        self._kinds = (
            LOSSES[assignment.network.loss],
            OPTIMIZERS[assignment.welcome.optimizer.name],
        )
        self._line = assignment.fence
        if assignment.network.layers[-1].output_major:
            from hogbatch.kernels.cpu import exact, wide

            self._train, self._evaluate = wide.train, exact.evaluate
        if assignment.welcome.lsh is not None:
            from workers import hashed

            self._hashed = hashed.HashedLayer(assignment, self.threads, post)
        self._warm_up()
        for number, core in enumerate(self._cores or [None] * self.threads):
            threading.Thread(target=self._serve, args=(number, core), daemon=True).start()
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
        thread = thread_state(self._assignment, 0)
        self._compute(Work(0, "train", 0, 0, 1, 1, 0.0, raised), 0, 1, thread)
        if self._assignment.test is not None:
            self._compute(Work(0, "evaluate", 0, 0, 1, 1, 0.0, raised), 0, 1, thread)
        if self._hashed is not None:
            self._hashed.start()

    def _serve(self, number: int, core: int | None) -> None:
        """One thread's life: the next part, whichever lease it is of."""
        if core is not None:
            pin(core)  # before it allocates anything
        thread, rollbacks = thread_state(self._assignment, number), 0
        while True:
            tally, start, stop = self._parts.get()
            began = time.perf_counter()
            try:
                if tally.work.rollbacks != rollbacks:
                    rollbacks = tally.work.rollbacks
                    self._begin_anew(thread, rollbacks)
                totals = self._compute(tally.work, start, stop, thread)
            except Exception as error:  # a kernel must not take the thread down in silence
                self._post(error)
                return
            if tally.add(totals, time.perf_counter() - began):
                self._post(report(tally.work, tally.totals, tally.seconds / self.threads))

    def _begin_anew(self, thread: ThreadState, rollbacks: int) -> None:
        """Let go of what came of a model that was rolled back."""
        copy_slots(self._assignment, thread)
        if self._hashed is not None:
            self._hashed.begin_anew(rollbacks)

    def _compute(
        self, work: Work, start: int, stop: int, thread: ThreadState
    ) -> NDArray[np.float64]:
        totals = np.zeros(TOTALS)
        loss, optimizer = self._kinds
        lease = self._network.BatchSettings(
            work.batch_size, loss, optimizer, work.fence, self.threads
        )
        if work.task == "evaluate":
            test = self._assignment.test
            assert test is not None, "the coordinator hands out test rows only if there are any"
            rows = np.arange(start, stop)
            self._evaluate(thread.model, test.inputs, test.labels, rows, lease, self._line, totals)
            return totals
        settings = self._assignment.welcome.optimizer
        hyper = Hyper(
            work.learning_rate, settings.l2, settings.momentum, settings.beta2, settings.epsilon
        )
        train, rows = self._assignment.train, self._assignment.orders.of(work.epoch)[start:stop]
        if self._hashed is not None:
            self._hashed.train(thread, rows, lease, hyper, totals)
        else:
            self._train(
                *(thread.model, train.inputs, train.labels, rows),
                *(lease, hyper, thread.head, self._line, totals),
            )
        return totals


def pin(core: int) -> None:
    """Keep this thread, and none other of the process, on `core`."""
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:  # the core was there at the start; it is no reason not to compute
        logging.warning("a thread is not pinned to core %d: %s", core, error.strerror)


def usable_cores(text: str) -> Cores:
    """The list of `--cores`."""
    try:
        cores = parse_cores(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    mask = os.sched_getaffinity(0)
    if beyond := set(cores) - mask:
        raise argparse.ArgumentTypeError(
            f"expected cores out of {show_cores(mask)}, which this process may use;"
            f" got {show_cores(beyond)}"
        )
    return cores


def arguments() -> argparse.ArgumentParser:
    """The flags of a CPU worker."""
    made = parser("cpu", "Attach a CPU worker to a coordinator running on this server.")
    made.add_argument(
        "--threads",
        type=int,
        metavar="T",
        help="number of threads (default: one per core of --cores, else per usable core)",
    )
    made.add_argument(
        "--cores",
        type=usable_cores,
        default=(),
        metavar="LIST",
        help="cores to pin the threads to, one each, as in 0,2,4-7 (default: no pinning)",
    )
    return made


def main() -> None:
    """Attach a CPU worker."""
    flags = arguments()
    given = flags.parse_args()
    threads = given.threads
    if threads is None:
        threads = len(given.cores) or read_topology().threads
    if threads < 1:
        flags.error(f"--threads must be at least 1; got {threads}")
    if given.cores and len(given.cores) != threads:
        count = len(given.cores)
        flags.error(f"--cores must name one core for each of {threads} threads; got {count} cores")
    run(given.run_dir, CpuEngine(threads, given.cores), given.launched)


if __name__ == "__main__":
    main()
