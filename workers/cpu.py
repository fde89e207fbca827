"""A CPU worker: T threads share each lease, and each updates the shared model without locks.

    python -m workers.cpu RUN_DIR --threads 2
    python -m workers.cpu RUN_DIR --cores 0,2       one thread pinned to each core

A lease is divided into one range of whole batches per thread. A thread that has finished its range
continues with a range of the next lease, so threads never wait for one another.
"""

import argparse
import logging
import os
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.compute.assignment import Assignment, run_sizes
from hogbatch.compute.device_profile import Profile
from hogbatch.compute.ranges import cut
from hogbatch.compute.report import report
from hogbatch.compute.thread_state import ThreadState, copy_slots, thread_state
from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, TOTALS, Hyper, add_totals
from hogbatch.machine.linux import read_topology
from hogbatch.machine.topology import Cores, parse_cores, show_cores
from hogbatch.model.footprint import cpu_worker, expect_memory
from hogbatch.wire.messages import Work
from workers.recording import BatchRecording, open_log
from workers.session import Post
from workers.start import parser, run

if TYPE_CHECKING:
    from workers.hashed import HashedLayer


@dataclass(slots=True)
class LeaseTotals:
    """The sums of a lease, while some of its ranges are still being computed."""

    work: Work
    remaining: int  # ranges
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(TOTALS))
    seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, totals: NDArray[np.float64], seconds: float) -> bool:
        """Add the results of one range; return True after the last."""
        with self.lock:
            add_totals(totals, self.totals)
            self.seconds += seconds
            self.remaining -= 1
            return self.remaining == 0


class ThreadTask(NamedTuple):
    """Rows [start, stop) of the epoch order or the test set, for one thread."""

    lease: LeaseTotals
    start: int
    stop: int


class CpuEngine:
    """Runs leases on `threads` threads without the interpreter lock, pinned to `cores` if given."""

    device = "cpu"

    def __init__(self, threads: int, cores: Cores = ()) -> None:
        self.threads = threads
        self._cores = cores
        self.label = f"cpu:{threads}"
        self._ranges: queue.SimpleQueue[ThreadTask] = queue.SimpleQueue()
        self._hashed: HashedLayer | None = None  # if the output layer is hashed
        self._recording: BatchRecording | None = None  # if updates are recorded

    def prepare(self, assignment: Assignment, post: Post) -> Profile:
        expect_memory(cpu_worker(run_sizes(assignment), self.threads), f"worker {self.label}")
        from hogbatch.kernels.cpu.loops import loop_for  # imports Numba

        self._loop = loop_for(
            assignment.network.layer_views(),
            sparse=assignment.train.sparse,
            hashed=assignment.welcome.lsh is not None,
        )
        self._assignment = assignment
        self._post = post
        self._kinds = (
            LOSSES[assignment.network.loss],
            OPTIMIZERS[assignment.welcome.optimizer.name],
        )
        self._line = assignment.fence
        self._train = self._loop.train
        if (log := open_log(assignment, self.device, self.threads)) is not None:
            self._recording = BatchRecording(log, self._loop.train)
            self._train = self._recording.train
        if self._loop.name == "hashed":
            from workers import hashed

            self._hashed = hashed.HashedLayer(
                assignment, self._train, self.threads, post, self._recording
            )
        self._warm_up()
        for number, core in enumerate(self._cores or [None] * self.threads):
            threading.Thread(target=self._serve, args=(number, core), daemon=True).start()
        return ()

    def submit(self, work: Work) -> None:
        ranges = cut(work.stop - work.start, work.batch_size, self.threads)
        lease = LeaseTotals(work, len(ranges))
        for start, stop in ranges:
            self._ranges.put(ThreadTask(lease, work.start + start, work.start + stop))

    def _warm_up(self) -> None:
        """Compile, or load from the cache, with leases that are revoked: no row is computed."""
        raised = int(self._line[0]) - 1
        thread = thread_state(self._assignment, 0)
        self._compute(Work(0, "train", 0, 0, 1, 1, 0.0, raised), 0, 1, thread)
        if self._assignment.test is not None:
            self._compute(Work(0, "evaluate", 0, 0, 1, 1, 0.0, raised), 0, 1, thread)
        if self._hashed is not None:
            self._hashed.start()

    def _serve(self, number: int, core: int | None) -> None:
        """Compute one range after the other on this thread, regardless of their leases."""
        if core is not None:
            pin(core)  # before it allocates anything
        if self._recording is not None:
            self._recording.joins(number)
        thread, rollbacks = thread_state(self._assignment, number), 0
        while True:
            lease, start, stop = self._ranges.get()
            began = time.perf_counter()
            try:
                if lease.work.rollbacks != rollbacks:
                    rollbacks = lease.work.rollbacks
                    self._reset(thread, rollbacks)
                totals = self._compute(lease.work, start, stop, thread)
            except Exception as error:  # without this, the thread would die silently
                self._post(error)
                return
            if lease.add(totals, time.perf_counter() - began):
                self._post(report(lease.work, lease.totals, lease.seconds / self.threads))

    def _reset(self, thread: ThreadState, rollbacks: int) -> None:
        """Discard the state that belongs to a model that was rolled back."""
        copy_slots(self._assignment, thread)
        if self._hashed is not None:
            self._hashed.reset(rollbacks)

    def _compute(
        self, work: Work, start: int, stop: int, thread: ThreadState
    ) -> NDArray[np.float64]:
        from hogbatch.kernels.cpu.model import BatchSettings  # imports Numba

        totals = np.zeros(TOTALS)
        loss, optimizer = self._kinds
        lease = BatchSettings(work.batch_size, loss, optimizer, work.fence, self.threads)
        if work.task == "evaluate":
            test = self._assignment.test
            assert test is not None, "the coordinator hands out test rows only if there are any"
            rows = np.arange(start, stop)
            self._loop.evaluate(
                thread.model, test.inputs, test.labels, rows, lease, self._line, totals
            )
        elif self._recording is None:
            self._train_rows(work, start, stop, thread, lease, totals)
        else:
            for first, last in self._recording.batches(work, start, stop, thread.number):
                self._train_rows(work, first, last, thread, lease, totals)
        return totals

    def _train_rows(
        self,
        work: Work,
        start: int,
        stop: int,
        thread: ThreadState,
        lease: Any,
        totals: NDArray[np.float64],
    ) -> None:
        """Train on rows [start, stop) of the epoch order."""
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


def pin(core: int) -> None:
    """Pin this thread, and no other thread of the process, to `core`."""
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:  # the core has gone offline; continue without it
        logging.warning("a thread is not pinned to core %d: %s", core, error.strerror)


def usable_cores(text: str) -> Cores:
    """Parse the list of `--cores`."""
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
    """Attach a CPU worker to a running job."""
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
