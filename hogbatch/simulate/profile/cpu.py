"""Measures batches of probe networks on CPU threads that share one model."""

import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import ACTIVE, ROWS, TOTALS, UPDATES
from hogbatch.simulate.hardware.cpu_cost import mean_found
from hogbatch.simulate.profile.networks import ProbeNetwork
from hogbatch.workers.compute.thread_state import thread_state

if TYPE_CHECKING:
    from hogbatch.workers.compute.hash_tables import HashTables

RATE = 1e-6  # so low that all numbers stay finite
REPETITIONS = 3
MAX_REPETITIONS = 25
TRIAL = 16  # batches before the repetitions
UNDISTURBED = 1.15  # seconds that pass for each second of computing
STARTED_QUICKLY = 8  # threads; more take longer to start, so they train for longer


class Measured(NamedTuple):
    """The mean batch of one thread."""

    seconds: float
    stored: float
    active: float
    found: float


def measure(probe: ProbeNetwork, batch: int, threads: int, seconds: float) -> Measured | None:
    """Return the fastest repetition of about `seconds` of training on `threads` threads.

    Repetitions take longer with more than STARTED_QUICKLY threads. None if other processes kept
    interrupting the threads.
    """
    runs = [_Run(probe, batch, number, threads) for number in range(threads)]
    runs[0].train(runs[0].draw(batch))  # compiles
    rows, began = runs[0].draw(TRIAL * batch), time.perf_counter()
    runs[0].train(rows)
    wanted = seconds * max(1.0, threads / STARTED_QUICKLY)
    count = max(1, round(TRIAL * wanted / (time.perf_counter() - began)))
    # Interruptions of a single thread do not matter: its clock stops until it continues. Threads
    # that take turns on one core do not compete for the weights.
    clocks: list[float] = []
    for _ in range(MAX_REPETITIONS):
        computing, passed = _together(runs, count * batch)
        if threads == 1 or passed <= UNDISTURBED * computing:
            clocks.append(computing)
        if len(clocks) == REPETITIONS:
            break
    if not clocks:
        return None
    totals = runs[0].totals
    trained, updates = max(totals[ROWS], 1.0), max(totals[UPDATES], 1.0)
    stored = probe.workload.stored * trained / updates if probe.workload.sparse else 0.0
    return Measured(min(clocks) / count, stored, float(totals[ACTIVE] / updates), runs[0].found)


def _together(runs: list["_Run"], rows: int) -> tuple[float, float]:
    """Train all runs at the same time, each on a core of its own if there are enough.

    Returns the mean seconds of computing of a thread, and the seconds from the first start to the
    last end.
    """
    barrier = threading.Barrier(len(runs))
    cores = sorted(os.sched_getaffinity(0))

    def work(run: "_Run", core: int) -> tuple[float, float, float]:
        if 1 < len(runs) <= len(cores):
            os.sched_setaffinity(0, {core})  # of this thread
        drawn = run.draw(rows)  # in Python, in which threads take turns
        barrier.wait()
        began, computing = time.perf_counter(), time.thread_time()
        run.train(drawn)
        return time.thread_time() - computing, began, time.perf_counter()

    with ThreadPoolExecutor(len(runs)) as pool:
        took = list(pool.map(work, runs, itertools.cycle(cores)))
    computing, begins, ends = zip(*took, strict=True)
    return sum(computing) / len(took), max(ends) - min(begins)


class _Run:
    """One thread's view of a probe network."""

    def __init__(self, probe: ProbeNetwork, batch: int, number: int, threads: int) -> None:
        from hogbatch.kernels.cpu.loops import loop_for

        assignment, lsh = probe.assignment, probe.assignment.welcome.lsh
        train, layers = assignment.train, assignment.network.layer_views()
        loop = loop_for(layers, sparse=train.sparse, hashed=lsh is not None)
        settings = assignment.batches(batch, int(assignment.fence[0]), threads)
        self.totals = np.zeros(TOTALS)
        self.found = 0.0  # outputs of a hashed layer in the buckets of a row, on average
        self._random = np.random.default_rng(number)
        self._order = self._random.permutation(train.rows)
        thread = thread_state(assignment, number)
        before: tuple[Any, ...] = (thread.model,)
        own: Any = thread.head
        if lsh is not None:
            tables, _ = build_tables(probe)
            finder, own = tables.finder(tables.current), tables.measuring_thread(thread, batch)
            self.found = mean_found(finder.tables.counts, lsh.bucket)
            before = thread.model, finder
        data, rest = (train.inputs, train.labels), (own, assignment.fence, self.totals)
        self.train: Callable[[NDArray[np.int64]], None] = lambda rows: loop.train(
            *before, *data, rows, settings, assignment.hyper(RATE), *rest
        )

    def draw(self, rows: int) -> NDArray[np.int64]:
        """Return the numbers of `rows` random rows, to train on."""
        start = int(self._random.integers(len(self._order)))
        return np.resize(np.roll(self._order, -start), rows)


@lru_cache(maxsize=1)  # the threads and batch sizes of a probe are measured one after the other
def build_tables(probe: ProbeNetwork) -> "tuple[HashTables, float]":
    """Hash all outputs into new tables; return the tables and the seconds this took."""
    from hogbatch.workers.compute.hash_tables import BuildPlan, HashTables

    tables, seconds = HashTables(probe.assignment), []
    for _ in range(3):  # the first one compiles
        began = time.perf_counter()
        tables.swap(tables.build(BuildPlan(0, redraw=False, everything=True)))
        seconds.append(time.perf_counter() - began)
    return tables, min(seconds)
