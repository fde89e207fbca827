"""The hashed output layer of a CPU worker: its threads, and a thread that builds hash tables.

Training threads look up outputs in one of the two sets of tables of `compute/hash_tables.py`,
while a background thread builds the other one. The background thread waits until nobody looks up
outputs in that set any more.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import UPDATES, Hyper
from hogbatch.kernels.cpu.lsh.selection import NeuronFinder
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.hash_tables import Find, HashTables
from hogbatch.workers.compute.thread_state import ThreadState, thread_state

if TYPE_CHECKING:
    from hogbatch.kernels.cpu.loops import CompiledLoop


class HashedLayer:
    """The hashed output layer of `assignment`, for `threads` threads.

    `train` is the hashed loop of `hogbatch.kernels.cpu.loops`. `fail` is called with the exception
    if tables cannot be built in the background.
    """

    def __init__(
        self,
        assignment: Assignment,
        train: Callable[..., None],
        threads: int,
        fail: Callable[[BaseException], None],
    ) -> None:
        assert assignment.welcome.lsh is not None, "`assignment` has a hashed output layer"
        self._background = assignment.welcome.lsh.background
        self._assignment, self._threads, self._fail = assignment, threads, fail
        self._train, self._tables = train, HashTables(assignment)
        self._condition = threading.Condition()  # of all calls of `_tables` but `build`
        self._rebuild_due = threading.Event()

    def start(self) -> None:
        """Build the first tables on all threads, and start building in the background."""
        self._build(self._threads)
        if self._background:
            threading.Thread(target=self._keep_building, daemon=True).start()

    def reset(self, rollbacks: int) -> None:
        """Hash all outputs again after roll-back number `rollbacks` has replaced their weights.

        Every thread may call this; only the first call for a roll-back has an effect.
        """
        with self._condition:
            due = self._tables.reset(rollbacks)
        if due:
            self._rebuild()

    def train(
        self,
        thread: ThreadState,
        rows: NDArray[np.int64],
        lease: Any,
        hyper: Hyper,
        totals: NDArray[np.float64],
    ) -> None:
        """Train on `rows` of the training set with the state of the calling thread."""
        own = self._tables.thread(thread, lease.batch_size)
        train, fence = self._assignment.train, self._assignment.fence
        while len(rows):
            until = len(rows)
            if not self._background:
                until = min(until, self._tables.updates_until_due * lease.batch_size)
            before, batches = totals[UPDATES], -(-len(rows[:until]) // lease.batch_size)
            with self._condition:
                self._tables.begin(batches)
            with self._finder() as finder:
                arrays = thread.model, finder, train.inputs, train.labels, rows[:until]
                self._train(*arrays, lease, hyper, own, fence, totals)
            self._end(batches, int(totals[UPDATES] - before))
            rows = rows[until:]
            if fence[0] != lease.fence:
                break

    def measured_loop(self, loop: "CompiledLoop", batch: int) -> "CompiledLoop":
        """Return `loop` with a `train` for networks without hash tables, which measures batches of
        up to `batch` rows on a copy of the model, before training.
        """
        own = self._tables.measuring_thread(thread_state(self._assignment, 0), batch)
        finder = self._tables.finder(self._tables.current)

        def train(
            model: Any, inputs: Any, labels: Any, rows: Any, lease: Any, hyper: Hyper, *rest: Any
        ) -> None:
            _, fence, totals = rest  # without the state of a thread for other loops
            loop.train(model, finder, inputs, labels, rows, lease, hyper, own, fence, totals)

        return loop._replace(train=train)

    def finding(self, thread: ThreadState, batch: int) -> Find:
        """Return `HashTables.finding`, which may be called while tables are built, compiled."""
        find = self._tables.finding(thread, batch, self._finder)
        fan_in = self._assignment.network.layer_views()[-1].fan_in
        find(np.zeros((1, fan_in), np.float32), np.arange(1))
        return find

    @contextmanager
    def _finder(self) -> Iterator[NeuronFinder]:
        """The current set of tables, which is not rebuilt inside the `with` block."""
        with self._condition:
            mine = self._tables.enter()
        try:
            yield self._tables.finder(mine)
        finally:
            with self._condition:
                self._tables.leave(mine)
                self._condition.notify_all()

    def _end(self, batches: int, updates: int) -> None:
        """Count `updates` of this worker in `batches` finished batches; rebuild if it is time."""
        with self._condition:
            due = self._tables.end(batches, updates)
        if due:
            self._rebuild()

    def _rebuild(self) -> None:
        if self._background:
            self._rebuild_due.set()
        else:
            self._build(1)

    def _keep_building(self) -> None:
        try:
            while True:
                self._rebuild_due.wait()
                self._rebuild_due.clear()
                self._build(1)
        except BaseException as error:  # training would continue with outdated tables
            self._fail(error)

    def _build(self, threads: int) -> None:
        """Build the other set of tables on `threads` threads once nobody uses it, and swap."""
        with self._condition:
            self._condition.wait_for(lambda: self._tables.may_build)
            plan = self._tables.plan()
        with ThreadPoolExecutor(threads) as pool:

            def run_parts(function: Callable[[int, int], None], count: int) -> None:
                edges = [count * part // threads for part in range(threads + 1)]
                list(pool.map(function, edges[:-1], edges[1:]))

            built = self._tables.build(plan, run_parts)
        with self._condition:
            self._tables.swap(built)
