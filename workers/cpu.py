"""A CPU worker: teams of threads share each lease, and update the shared model without locks.

    hogbatch worker cpu RUN_DIR --threads 2
    hogbatch worker cpu RUN_DIR --cores 0,2       one thread pinned to each core

A lease is divided into one range of whole batches per team; see `workers/compute/teams.py`. A team,
which may be a single thread, that has finished its range continues with a range of the next lease,
so teams never wait for one another.
"""

import argparse
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hogbatch.kernels.contract import TOTALS, add_totals
from hogbatch.machine.linux import read_topology
from hogbatch.machine.process import pin
from hogbatch.machine.topology import (
    Cores,
    cores_of_teams,
    parse_cores,
    physical_cores,
    show_cores,
    training_threads,
)
from hogbatch.model.footprint import cpu_worker, expect_memory
from hogbatch.policy.limits import largest_cpu_batch
from hogbatch.wire.messages import Done, Failed, Lease, Ready
from hogbatch.workers.ahead import compiling_ahead
from hogbatch.workers.compute.assignment import Assignment, run_sizes
from hogbatch.workers.compute.device_profile import Profile
from hogbatch.workers.compute.measured_batches import MAX_CPU_MODEL_BYTES, measure_cpu_sizes
from hogbatch.workers.compute.report import report
from hogbatch.workers.compute.teams import Teams, computes_together, cut, divide
from hogbatch.workers.compute.thread_state import ThreadState, copy_slots, thread_state
from hogbatch.workers.noise import ROWS, SUMS, NoiseMeter
from hogbatch.workers.session import Post
from hogbatch.workers.start import parser, run

if TYPE_CHECKING:
    from hogbatch.kernels.cpu.loops import CompiledLoop
    from hogbatch.workers.hashed import HashedLayer


@dataclass(slots=True)
class LeaseTotals:
    """The sums of a lease, while some of its ranges are still being computed."""

    lease: Lease
    remaining: int  # ranges
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(TOTALS))
    seconds: float = 0.0
    noise: NDArray[np.float64] = field(default_factory=lambda: np.zeros(SUMS))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(
        self,
        totals: NDArray[np.float64],
        seconds: float,
        noise: NDArray[np.float64] | None = None,
    ) -> bool:
        """Add the results of one range; return True after the last."""
        with self.lock:
            if noise is not None:
                self.noise += noise
            add_totals(totals, self.totals)
            self.seconds += seconds
            self.remaining -= 1
            return self.remaining == 0

    def report(self, teams: int) -> Done | Failed:
        """Return the message after the last range; `teams` teams have computed them."""
        noise = tuple(self.noise.tolist()) if self.noise.any() else None
        return report(self.lease, self.totals, self.seconds / teams, noise=noise)


class TeamTask(NamedTuple):
    """Rows [start, stop) of the epoch order or of a set that is evaluated, for one team."""

    progress: LeaseTotals
    start: int
    stop: int


def divide_lease(lease: Lease, teams: int) -> list[TeamTask]:
    """Divide a lease among at most `teams` teams."""
    ranges = cut(lease.stop - lease.start, lease.batch_size, teams)
    progress = LeaseTotals(lease, len(ranges))
    return [TeamTask(progress, lease.start + start, lease.start + stop) for start, stop in ranges]


class CpuEngine:
    """Runs leases on `threads` threads without the interpreter lock, pinned to `cores` if given."""

    device = "cpu"

    def __init__(self, threads: int, cores: Cores = ()) -> None:
        self.threads = threads
        self._cores = cores
        self.label = f"cpu:{threads}"
        self._ranges: queue.SimpleQueue[TeamTask | None] = queue.SimpleQueue()  # None: the end
        self._threads: list[threading.Thread] = []  # the first one of each team
        self._measured: queue.SimpleQueue[Profile | Exception] = queue.SimpleQueue()
        self._hashed: HashedLayer | None = None  # if the output layer is hashed

    def prepare(self, assignment: Assignment, post: Post) -> Ready:
        network = assignment.network
        name = "hashed" if assignment.welcome.lsh else "wide" if network.output_major else "dense"
        with compiling_ahead("backbone" if network.backbone else name) as wait:
            from hogbatch.kernels.cpu.loops import loop_for  # imports Numba

            self._loop = loop_for(
                network.layer_views(),
                sparse=assignment.train.sparse,
                hashed=assignment.welcome.lsh is not None,
                backbone=network.placed_backbone(),
            )
            self._teams = teams = self._divide(assignment)
            memory = cpu_worker(run_sizes(assignment), teams.threads, teams.count)
            expect_memory(memory, f"worker {self.label}")
            self._assignment = assignment
            self._post = post
            self._line = assignment.fence
            if self._loop.name == "hashed":
                from hogbatch.workers import hashed

                self._hashed = hashed.HashedLayer(assignment, self._loop.train, self.threads, post)
            self._warm_up(wait)
        places = [self._cores] * teams.count
        if self._cores:
            places = cores_of_teams(read_topology(), self._cores, teams.count, teams.members)
        for number, cores in enumerate(places):
            thread = threading.Thread(target=self._serve, args=(number, cores), daemon=True)
            thread.start()
            self._threads.append(thread)
        measured = self._measured.get()
        if isinstance(measured, Exception):
            raise measured
        return Ready(measured, teams=teams.count, members=teams.members)

    def _divide(self, assignment: Assignment) -> Teams:
        """Divide the threads into teams, which depends on the network and on the cores."""
        wanted, layers = assignment.welcome.cpu_teams, assignment.network.layer_views()
        together = computes_together(wanted, self._loop.name, layers, assignment.train)
        cores = physical_cores(read_topology(), self._cores) if self._cores else 0
        return divide(wanted, self.threads, cores, together=together)

    def _team_loop(self, members: int, cores: Cores = ()) -> "CompiledLoop":
        """The loop for the calling thread, which is the first one of a team on these `cores`."""
        if self._teams.members == 1:
            return self._loop
        from hogbatch.workers.team import ThreadTeam  # imports Numba

        return ThreadTeam(self._loop, members, cores).as_loop

    def submit(self, lease: Lease) -> None:
        for task in divide_lease(lease, self._teams.count):
            self._ranges.put(task)

    def close(self) -> None:
        """Wait until all leases are done, and end the threads; each must be on its own.

        The threads of a worker process end with it.
        """
        for _ in self._threads:
            self._ranges.put(None)
        for thread in self._threads:
            thread.join()

    def _warm_up(self, wait_for_evaluation: Callable[[], object]) -> None:
        """Compile, or load from the cache, with leases that are revoked: no row is computed.

        Another process may compile the evaluation meanwhile.
        """
        raised = int(self._line[0]) - 1
        thread, loop = thread_state(self._assignment, 0), self._team_loop(members=1)
        revoked = Lease(0, "train", 0, 0, 1, 1, 0.0, raised)
        self._compute(revoked, 0, 1, thread, loop)
        wait_for_evaluation()
        for name in list(self._assignment.held_out)[:1]:  # the sets have the same form
            self._compute(structs.replace(revoked, task=name), 0, 1, thread, loop)
        if self._hashed is not None:
            self._hashed.start()

    def _serve(self, number: int, cores: Cores) -> None:
        """Work as team `number`; without this, a thread that fails would die silently."""
        try:
            self._work(number, cores)
        except Exception as error:
            self._post(error)

    def _work(self, number: int, cores: Cores) -> None:
        """Compute one range after the other, regardless of their leases."""
        if cores:
            pin(cores[0])  # before it allocates anything
        thread, rollbacks = thread_state(self._assignment, number), 0
        loop = self._team_loop(self._teams.members, cores)
        find = None if self._hashed is None else self._hashed.finding(thread, ROWS)
        if number == 0:
            self._measured.put(self._measure(loop))
        meter = NoiseMeter(self._assignment, thread.model, self._teams.count, find)
        while (task := self._ranges.get()) is not None:
            progress, start, stop = task
            lease, noise = progress.lease, None
            if lease.rollbacks != rollbacks:
                rollbacks = lease.rollbacks
                self._reset(thread, rollbacks)
            if lease.task == "train":
                noise = meter.measure(lease, start)
            began = time.perf_counter()
            totals = self._compute(lease, start, stop, thread, loop)
            if progress.add(totals, time.perf_counter() - began, noise):
                self._post(progress.report(self._teams.count))

    def _measure(self, loop: "CompiledLoop") -> Profile | Exception:
        """Measure batches with `loop`; the exception if that fails."""
        train = self._assignment.train
        rows = min(largest_cpu_batch(train.rows, self._teams.members), train.rows)
        settings = self._assignment.batches(rows, 0, self._teams.count)
        if self._hashed is not None:
            loop = self._hashed.measured_loop(loop, rows)
        try:
            return profile(loop, self._assignment, settings)
        except Exception as error:
            return error

    def _reset(self, thread: ThreadState, rollbacks: int) -> None:
        """Discard the state that belongs to a model that was rolled back."""
        copy_slots(self._assignment, thread)
        if self._hashed is not None:
            self._hashed.reset(rollbacks)

    def _compute(
        self, lease: Lease, start: int, stop: int, thread: ThreadState, loop: "CompiledLoop"
    ) -> NDArray[np.float64]:
        totals = np.zeros(TOTALS)
        batches = self._assignment.batches(lease.batch_size, lease.fence, self._teams.count)
        if lease.task != "train":
            chosen, rows = self._assignment.sets[lease.task], np.arange(start, stop)
            batches = batches._replace(dropout=None, augmentation=None)
            data = chosen.inputs, chosen.labels, rows
            loop.evaluate(thread.model, *data, batches, self._line, totals, self._assignment.scores)
            return totals
        train, hyper = self._assignment.train, self._assignment.hyper(lease.learning_rate)
        rows = self._assignment.orders.row_order(lease.epoch)[start:stop]
        if self._hashed is not None:
            self._hashed.train(thread, rows, batches, hyper, totals)
        else:
            data = train.inputs, train.labels, rows
            loop.train(thread.model, *data, batches, hyper, thread.head, self._line, totals)
        return totals


def profile(loop: "CompiledLoop", assignment: Assignment, settings: Any) -> Profile:
    """Measure batches with `loop` on a copy of the model; empty for large models.

    `settings` are the BatchSettings of a lease with the largest batches. The rows are drawn at
    random, as those of a lease, but they are the same in all repetitions.
    """
    if assignment.model.params.nbytes > MAX_CPU_MODEL_BYTES:
        return ()
    thread = thread_state(assignment, 0)
    copies = {
        name: getattr(thread.model, name).copy()
        for name in ("params", "first", "second", "steps", "own_first", "own_second")
    }
    model, train, hyper = thread.model._replace(**copies), assignment.train, assignment.hyper(0.0)
    fence, data = np.full(1, settings.fence, np.int64), (train.inputs, train.labels)

    def seconds_of(rows: int, batches: int) -> float:
        drawn = np.random.default_rng(0).integers(train.rows, size=batches * rows)
        own, totals = settings._replace(batch_size=rows), np.zeros(TOTALS)
        began = time.perf_counter()
        loop.train(model, *data, drawn, own, hyper, thread.head, fence, totals)
        return time.perf_counter() - began

    return measure_cpu_sizes(seconds_of, settings.batch_size, train.rows)


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
    flags = parser("cpu", "Attach a CPU worker to a coordinator running on this server.")
    flags.add_argument(
        "--threads",
        type=int,
        metavar="T",
        help="number of threads (default: one per core of --cores, else per usable physical core)",
    )
    flags.add_argument(
        "--cores",
        type=usable_cores,
        default=(),
        metavar="LIST",
        help="cores to pin the threads to, one each, as in 0,2,4-7 (default: no pinning)",
    )
    return flags


def main() -> None:
    """Attach a CPU worker to a running job."""
    flags = arguments()
    options = flags.parse_args()
    threads = options.threads
    if threads is None:
        found = read_topology()
        threads = len(options.cores) or training_threads(found.threads, len(found.siblings))
    if threads < 1:
        flags.error(f"--threads must be at least 1; got {threads}")
    if options.cores and len(options.cores) != threads:
        count = len(options.cores)
        flags.error(f"--cores must name one core for each of {threads} threads; got {count} cores")
    run(options.run_dir, CpuEngine(threads, options.cores), options.launched)


if __name__ == "__main__":
    main()
