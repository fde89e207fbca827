"""The hash tables of a worker's output layer, and when they are rebuilt.

There are two sets of tables. Threads look up outputs in one set while the other is built from
weights that the same threads keep changing; then the sets are swapped. The tables are private to a
CPU worker, so that a worker that dies leaves no half-built tables to other workers.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.compute.assignment import Assignment
from hogbatch.compute.thread_state import ThreadState
from hogbatch.kernels.contract import UPDATES, Hyper
from hogbatch.kernels.cpu.lsh.functions import FAMILIES, HashFunctions, draw
from hogbatch.kernels.cpu.lsh.network import HashedThread
from hogbatch.kernels.cpu.lsh.neurons import hash_neurons
from hogbatch.kernels.cpu.lsh.selection import RULES, NeuronFinder, SelectionRule, scratch
from hogbatch.kernels.cpu.lsh.sketches import empty_sketches
from hogbatch.kernels.cpu.lsh.tables import clear, empty_tables, insert

UNKNOWN = -(2**62)  # updates of other workers: less than any count, so a change is assumed


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
        lsh = assignment.welcome.lsh
        assert lsh is not None, "a hashed output layer needs the settings of its hash tables"
        self._lsh, self._assignment, self._threads, self._fail = lsh, assignment, threads, fail
        self._train = train
        layer, weight = assignment.network.layers[-1], assignment.network.tensors()[-2]
        self._fan_in, self._neurons = layer.fan_in, layer.width
        stop = weight.offset + weight.stored[0] * weight.stored[1]
        self._weights = assignment.model.params[weight.offset : stop].reshape(weight.stored)
        self._codes = np.empty((self._neurons, lsh.tables), np.int32)
        self._changed = np.zeros(self._neurons, np.uint8)
        self._max_found = min(lsh.most, self._neurons)
        random = min(lsh.random, self._neurons)
        rule = SelectionRule(RULES[lsh.sampling], lsh.top, lsh.seen, self._max_found, random)
        functions = self._draw(0)
        self._sketches = empty_sketches(self._fan_in, self._neurons, lsh.seed)
        self._sets = [
            NeuronFinder(
                *(rule, functions, empty_tables(lsh.tables, lsh.bits, lsh.bucket)), self._sketches
            )
            for _ in range(2)
        ]
        self._own: dict[int, HashedThread] = {}
        self._condition = threading.Condition()
        self._current, self._users = 0, [0, 0]  # threads that are looking up outputs, for each set
        self._updates, self._in_progress = 0, 0  # of this worker: updates done, batches in progress
        self._foreign = assignment.model.updates  # of other workers, at the last full hash
        self._due, self._interval = lsh.rehash, float(lsh.rehash)
        self._builds = self._rollbacks = 0
        self._rebuild_due = threading.Event()

    def start(self) -> None:
        """Build the first tables on all threads, and start building in the background."""
        self._build(self._threads)
        if self._lsh.background:
            threading.Thread(target=self._keep_building, daemon=True).start()

    def reset(self, rollbacks: int) -> None:
        """Hash all outputs again after roll-back number `rollbacks` has replaced their weights.

        Every thread may call this; only the first call for a roll-back has an effect.
        """
        with self._condition:
            known, self._rollbacks = self._rollbacks, rollbacks
            if known == rollbacks:
                return
            self._foreign = UNKNOWN
        if self._lsh.background:
            self._rebuild_due.set()
        else:
            self._build(1)

    def train(
        self,
        thread: ThreadState,
        rows: NDArray[np.int64],
        lease: Any,
        hyper: Hyper,
        totals: NDArray[np.float64],
    ) -> None:
        """Train on `rows` of the training set with the state of the calling thread."""
        own = self._own_state(thread, lease.batch_size)
        train, fence = self._assignment.train, self._assignment.fence
        while len(rows):
            until = len(rows)
            if not self._lsh.background:
                until = min(until, (self._due - self._updates) * lease.batch_size)
            before, batches = totals[UPDATES], -(-len(rows[:until]) // lease.batch_size)
            with self._condition:
                self._in_progress += batches
            with self._tables() as finder:
                self._train(
                    *(thread.model, finder, train.inputs, train.labels, rows[:until]),
                    *(lease, hyper, own, fence, totals),
                )
            self._count(int(totals[UPDATES] - before), batches)
            rows = rows[until:]
            if fence[0] != lease.fence:
                break

    def _own_state(self, thread: ThreadState, batch: int) -> HashedThread:
        """Return the state that a thread keeps between leases, allocated for `batch` rows."""
        own = self._own.get(thread.number)
        if own is None or len(own.space.sizes) < batch:
            seed = _seed(self._lsh.seed, self._assignment.welcome.worker, thread.number)
            tables, max_found = self._sets[0].tables, self._max_found
            own = HashedThread(
                thread.head,
                scratch(batch, tables, self._neurons, max_found, seed),
                np.full(self._neurons, -1, np.int32),
                self._changed,
            )
            self._own[thread.number] = own
        return own

    @contextmanager
    def _tables(self) -> Iterator[NeuronFinder]:
        """The current set of tables, which is not rebuilt inside the `with` block."""
        with self._condition:
            mine = self._current
            self._users[mine] += 1
        try:
            yield self._sets[mine]
        finally:
            with self._condition:
                self._users[mine] -= 1
                self._condition.notify_all()

    def _count(self, updates: int, batches: int) -> None:
        """Count `updates` of this worker in `batches` finished batches; rebuild if it is time."""
        with self._condition:
            self._updates += updates
            self._in_progress -= batches
            if self._updates < self._due:
                return
            self._interval *= self._lsh.growth
            self._due = self._updates + int(self._interval)
        if self._lsh.background:
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
        """Hash the changed outputs (all with new functions), fill the other set, and swap."""
        lsh, other = self._lsh, 1 - self._current
        functions = self._sets[self._current].functions
        everything = self._others_wrote() or self._builds % lsh.rebuild == 0
        if self._builds % lsh.rebuild == 0 and self._builds > 0:
            functions = self._draw(self._builds)
        ids = np.arange(self._neurons)
        if not everything:  # a copy: NumPy counts in two passes, while threads mark outputs
            ids = np.flatnonzero(self._changed.copy())
        order = np.random.default_rng((lsh.seed, self._builds)).permutation(self._neurons)
        order = order.astype(np.int32)
        with self._condition:
            self._condition.wait_for(lambda: self._users[other] == 0)
        tables, seed = self._sets[other].tables, _seed(lsh.seed, self._builds)
        reservoir = lsh.insertion == "reservoir"

        def hash_part(first: int, last: int) -> None:
            hash_neurons(
                *(functions, self._sketches, self._weights, ids[first:last]),
                *(self._changed, self._codes),
            )

        def fill(first: int, last: int) -> None:
            clear(tables, first, last)
            insert(tables, first, last, self._codes, order, reservoir, seed)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(hash_part, *_parts(len(ids), threads)))
            list(pool.map(fill, *_parts(lsh.tables, threads)))
        with self._condition:
            self._sets[other] = self._sets[other]._replace(functions=functions)
            self._current = other
        self._builds += 1

    def _others_wrote(self) -> bool:
        """Whether outputs have changed that this worker has not marked.

        The count of updates in the model may already include batches of this worker that are in
        progress. So other workers are assumed to have written only if these cannot explain the
        count; a change is detected some builds later at the latest.
        """
        with self._condition:
            updates, in_progress = self._updates, self._in_progress
        foreign = self._assignment.model.updates - updates
        if foreign - in_progress > self._foreign:
            self._foreign = foreign
            return True
        self._foreign = min(self._foreign, foreign)  # the model's count misses a few updates
        return False

    def _draw(self, build: int) -> HashFunctions:
        lsh = self._lsh
        family, seed = FAMILIES[lsh.family], _seed(lsh.seed, build)
        return draw(family, self._fan_in, lsh.hashes, lsh.tables, lsh.bits, seed)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _parts(count: int, parts: int) -> tuple[list[int], list[int]]:
    """Divide [0, count) into `parts` ranges; return their starts and their stops."""
    edges = [count * part // parts for part in range(parts + 1)]
    pairs = list(pairwise(edges))
    return [first for first, _ in pairs], [last for _, last in pairs]
