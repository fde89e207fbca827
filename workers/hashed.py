"""The hash tables over a worker's output layer, and when they are built anew.

Threads look neurons up in one set of tables while the other is built from weights that the same
threads go on changing; then the two change places. A CPU worker keeps its tables to itself, so that
one that dies leaves none half built to others.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import UPDATES, Hyper
from hogbatch.kernels.cpu.lsh import network
from hogbatch.kernels.cpu.lsh.functions import FAMILIES, HashFunctions, draw
from hogbatch.kernels.cpu.lsh.neurons import hash_neurons
from hogbatch.kernels.cpu.lsh.selection import RULES, NeuronFinder, SelectionRule, scratch
from hogbatch.kernels.cpu.lsh.sketches import empty_sketches
from hogbatch.kernels.cpu.lsh.tables import clear, empty_tables, insert
from workers.session import Assignment
from workers.thread_state import ThreadState

NOBODY = -(2**62)  # updates of others: so few that there are more of them in any case


class HashedLayer:
    """The output layer of `assignment`, for `threads` threads; `fail` hears what goes wrong."""

    def __init__(
        self, assignment: Assignment, threads: int, fail: Callable[[BaseException], None]
    ) -> None:
        lsh = assignment.welcome.lsh
        assert lsh is not None, "an output layer by neuron comes with the settings of its hashing"
        self._lsh, self._assignment, self._threads, self._fail = lsh, assignment, threads, fail
        layer, weight = assignment.network.layers[-1], assignment.network.tensors()[-2]
        self._fan_in, self._neurons = layer.fan_in, layer.width
        stop = weight.offset + weight.stored[0] * weight.stored[1]
        self._weights = assignment.model.params[weight.offset : stop].reshape(weight.stored)
        self._codes = np.empty((self._neurons, lsh.tables), np.int32)
        self._changed = np.zeros(self._neurons, np.uint8)
        self._most = min(lsh.most, self._neurons)
        random = min(lsh.random, self._neurons)
        rule = SelectionRule(RULES[lsh.sampling], lsh.top, lsh.seen, self._most, random)
        functions = self._draw(0)
        self._sketches = empty_sketches(self._fan_in, self._neurons, lsh.seed)
        self._sets = [
            NeuronFinder(
                *(rule, functions, empty_tables(lsh.tables, lsh.bits, lsh.bucket)), self._sketches
            )
            for _ in range(2)
        ]
        self._own: dict[int, network.HashedThread] = {}
        self._turn = threading.Condition()
        self._current, self._users = 0, [0, 0]  # of each set: threads that look neurons up in it
        self._updates, self._under_way = 0, 0  # of this worker: updates, and batches it is at
        self._foreign = assignment.model.updates  # updates of others when all were last hashed
        self._due, self._pause = lsh.rehash, float(lsh.rehash)
        self._builds = self._rollbacks = 0
        self._bell = threading.Event()

    def start(self) -> None:
        """Build the first tables on all threads; from now on others follow by themselves."""
        self._build(self._threads)
        if self._lsh.background:
            threading.Thread(target=self._keep_building, daemon=True).start()

    def begin_anew(self, rollbacks: int) -> None:
        """Hash all neurons anew: their weights are others since the last of so many roll-backs.

        Every thread may say so; the first to do it is heard.
        """
        with self._turn:
            known, self._rollbacks = self._rollbacks, rollbacks
            if known == rollbacks:
                return
            self._foreign = NOBODY
        if self._lsh.background:
            self._bell.set()
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
        """Train on `rows` of the training set, in one thread's `thread`."""
        own = self._own_state(thread, lease.batch_size)
        train, fence = self._assignment.train, self._assignment.fence
        while len(rows):
            until = len(rows)
            if not self._lsh.background:
                until = min(until, (self._due - self._updates) * lease.batch_size)
            before, batches = totals[UPDATES], -(-len(rows[:until]) // lease.batch_size)
            with self._turn:
                self._under_way += batches
            with self._tables() as finder:
                network.train(
                    *(thread.model, finder, train.inputs, train.labels, rows[:until]),
                    *(lease, hyper, own, fence, totals),
                )
            self._count(int(totals[UPDATES] - before), batches)
            rows = rows[until:]
            if fence[0] != lease.fence:
                break

    def _own_state(self, thread: ThreadState, batch: int) -> network.HashedThread:
        """What `thread`'s thread keeps from lease to lease, with room for `batch` rows."""
        own = self._own.get(thread.number)
        if own is None or len(own.space.sizes) < batch:
            seed = _seed(self._lsh.seed, self._assignment.welcome.worker, thread.number)
            tables, most = self._sets[0].tables, self._most
            own = network.HashedThread(
                thread.head,
                scratch(batch, tables, self._neurons, most, seed),
                np.full(self._neurons, -1, np.int32),
                self._changed,
            )
            self._own[thread.number] = own
        return own

    @contextmanager
    def _tables(self) -> Iterator[NeuronFinder]:
        """The set in use; it stays as it is meanwhile."""
        with self._turn:
            mine = self._current
            self._users[mine] += 1
        try:
            yield self._sets[mine]
        finally:
            with self._turn:
                self._users[mine] -= 1
                self._turn.notify_all()

    def _count(self, updates: int, batches: int) -> None:
        """Take in updates of this worker, of so many batches; build anew when it is time."""
        with self._turn:
            self._updates += updates
            self._under_way -= batches
            if self._updates < self._due:
                return
            self._pause *= self._lsh.growth
            self._due = self._updates + int(self._pause)
        if self._lsh.background:
            self._bell.set()
        else:
            self._build(1)

    def _keep_building(self) -> None:
        try:
            while True:
                self._bell.wait()
                self._bell.clear()
                self._build(1)
        except BaseException as error:  # training would go on with tables that no longer fit
            self._fail(error)

    def _build(self, threads: int) -> None:
        """Hash what has changed, with new functions all; fill the other set, and use it."""
        lsh, other = self._lsh, 1 - self._current
        functions = self._sets[self._current].functions
        everything = self._others_wrote() or self._builds % lsh.rebuild == 0
        if self._builds % lsh.rebuild == 0 and self._builds > 0:
            functions = self._draw(self._builds)
        ids = np.arange(self._neurons)
        if not everything:  # of a copy: NumPy counts twice, and threads mark neurons meanwhile
            ids = np.flatnonzero(self._changed.copy())
        order = np.random.default_rng((lsh.seed, self._builds)).permutation(self._neurons)
        order = order.astype(np.int32)
        with self._turn:
            self._turn.wait_for(lambda: self._users[other] == 0)
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
        with self._turn:
            self._sets[other] = self._sets[other]._replace(functions=functions)
            self._current = other
        self._builds += 1

    def _others_wrote(self) -> bool:
        """Whether neurons have changed that this worker has not marked.

        Of its batches under way, some may be in the model's count of updates already: others are
        believed to have written when that does not explain it, at the latest some builds later.
        """
        with self._turn:
            updates, under_way = self._updates, self._under_way
        foreign = self._assignment.model.updates - updates
        if foreign - under_way > self._foreign:
            self._foreign = foreign
            return True
        self._foreign = min(self._foreign, foreign)  # the model's count misses a few
        return False

    def _draw(self, build: int) -> HashFunctions:
        lsh = self._lsh
        family, seed = FAMILIES[lsh.family], _seed(lsh.seed, build)
        return draw(family, self._fan_in, lsh.hashes, lsh.tables, lsh.bits, seed)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _parts(count: int, parts: int) -> tuple[list[int], list[int]]:
    """[0, count) cut into `parts`: where each begins and ends."""
    edges = [count * part // parts for part in range(parts + 1)]
    pairs = list(pairwise(edges))
    return [first for first, _ in pairs], [last for _, last in pairs]
