"""The hash tables of an output layer: what they are built from, and when they are due.

There are two sets of tables. Threads look up outputs in the current set, while the other one is
built from weights that the same threads keep changing; then the sets are swapped. The tables are
private to a worker, so that a worker that dies leaves no half-built tables to other workers.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import Floats, Rows
from hogbatch.kernels.cpu.lsh.functions import FAMILIES, HashFunctions, draw
from hogbatch.kernels.cpu.lsh.network import HashedThread, find
from hogbatch.kernels.cpu.lsh.neurons import hash_neurons
from hogbatch.kernels.cpu.lsh.selection import HashedRows, NeuronFinder, SelectionRule, scratch
from hogbatch.kernels.cpu.lsh.sketches import WORDS, empty_sketches
from hogbatch.kernels.cpu.lsh.tables import clear, empty_tables, insert
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.thread_state import ThreadState

UNKNOWN = -(2**62)  # updates of other workers: less than any count, so a change is assumed

# Returns the active outputs [A] of rows[B] of the training set with the inputs x[B, K], ascending.
Find = Callable[[Floats, Rows], NDArray[np.int32]]
Using = Callable[[], AbstractContextManager[object]]

# Calls a function with ranges [first, last) that divide [0, count), in any order or in parallel.
RunParts = Callable[[Callable[[int, int], None], int], None]


class BuildPlan(NamedTuple):
    """The work of one build."""

    number: int  # of the build, from 0
    redraw: bool  # draw new hash functions
    everything: bool  # hash all outputs, not only those that have changed


class HashTables:
    """The two sets of hash tables of a worker's output layer.

    Nothing here waits or locks. A worker with several threads makes all calls under one lock,
    except `build`, which takes long, and `thread`, which uses only what belongs to one thread. It
    calls `build` only if `may_build`.
    """

    def __init__(self, assignment: Assignment) -> None:
        lsh = assignment.welcome.lsh
        assert lsh is not None, "a hashed output layer needs the settings of its hash tables"
        self._lsh, self._worker, self._model = lsh, assignment.welcome.worker, assignment.model
        self._labels = assignment.train.labels
        layer, weight = assignment.network.layers[-1], assignment.network.tensors()[-2]
        self._fan_in, self._neurons = layer.fan_in, layer.width
        stop = weight.offset + weight.stored[0] * weight.stored[1]
        self._weights = self._model.params[weight.offset : stop].reshape(weight.stored)
        self._codes = np.empty((self._neurons, lsh.tables), np.int32)
        self._changed = np.zeros(self._neurons, np.uint8)
        self._max_found = min(lsh.most, self._neurons)
        random = min(lsh.random, self._neurons)
        rule = SelectionRule(lsh.top, self._max_found, random)
        functions = self._draw(0)
        self._sketches = empty_sketches(self._fan_in, self._neurons, lsh.seed)
        self._sets = [
            NeuronFinder(
                rule, functions, empty_tables(lsh.tables, lsh.bits, lsh.bucket), self._sketches
            )
            for _ in range(2)
        ]
        self._own: dict[int, HashedThread] = {}
        self.current = 0  # number of the set in which outputs are looked up
        self._users = [0, 0]  # threads that look up outputs, for each set
        self._updates, self._in_progress = 0, 0  # of this worker: updates done, batches in progress
        self._foreign = self._model.updates  # of other workers, at the last full hash
        self._due, self._interval = lsh.rehash, float(lsh.rehash)
        self._builds = self._rollbacks = 0

    # Use ------------------------------------------------------------------------------------------

    @property
    def other(self) -> int:
        """The number of the set that the next build fills."""
        return 1 - self.current

    def enter(self) -> int:
        """Let a thread look up outputs in the current set until `leave`; return its number."""
        self._users[self.current] += 1
        return self.current

    def leave(self, number: int) -> None:
        """End the use of set `number` by one thread."""
        self._users[number] -= 1

    @property
    def may_build(self) -> bool:
        """Whether no thread looks up outputs in the set that the next build fills."""
        return self._users[self.other] == 0

    def finder(self, number: int) -> NeuronFinder:
        """Return set `number`, for the kernels."""
        return self._sets[number]

    def thread(self, thread: ThreadState, batch: int) -> HashedThread:
        """Return the state that a thread keeps between leases, allocated for `batch` rows."""
        own = self._own.get(thread.number)
        if own is None or len(own.space.sizes) < batch:
            own = self._own[thread.number] = self._new_thread(thread, batch, self._changed)
        return own

    def measuring_thread(self, thread: ThreadState, batch: int) -> HashedThread:
        """Return a state for `batch` rows that a thread uses to measure batches on a copy of the
        model: it marks no output as changed, and draws none of the random numbers of `thread`.
        """
        return self._new_thread(thread, batch, self._changed.copy())

    def finding(self, thread: ThreadState, batch: int, using: Using = nullcontext) -> Find:
        """Return a function for batches of up to `batch` rows, which looks up in the current set.

        It draws none of the random numbers of `thread`. It uses the set in a context of `using`.
        """
        own, tables = self.measuring_thread(thread, batch), self._lsh.tables
        space = HashedRows(*(np.empty((batch, width), np.int32) for width in (tables, WORDS)))

        def active_outputs(x: Floats, rows: Rows) -> NDArray[np.int32]:
            active = np.empty(self._neurons + 1, np.int32)  # `select` writes behind the last one
            with using():
                batch = self._sets[self.current], x, self._labels, rows
                active = active[: find(*batch, own, space, active)]
            own.place[active] = -1
            return np.sort(active)

        return active_outputs

    def _new_thread(
        self, thread: ThreadState, batch: int, changed: NDArray[np.uint8]
    ) -> HashedThread:
        seed = _seed(self._lsh.seed, self._worker, thread.number)
        tables, max_found = self._sets[0].tables, self._max_found
        return HashedThread(
            thread.head,
            scratch(batch, tables, self._neurons, max_found, seed),
            np.full(self._neurons, -1, np.int32),
            changed,
        )

    # When a build is due --------------------------------------------------------------------------

    @property
    def updates_until_due(self) -> int:
        """The number of updates of this worker after which the next build is due."""
        return self._due - self._updates

    def begin(self, batches: int) -> None:
        """Count batches that a thread is about to compute."""
        self._in_progress += batches

    def end(self, batches: int, updates: int) -> bool:
        """Count the `updates` made by batches that began; return whether a build is due now.

        If so, the next one is due after an interval that is longer by the factor `growth`.
        """
        self._updates += updates
        self._in_progress -= batches
        if self._updates < self._due:
            return False
        self._interval *= self._lsh.growth
        self._due = self._updates + int(self._interval)
        return True

    def reset(self, rollbacks: int) -> bool:
        """Note that roll-back number `rollbacks` has replaced the weights.

        Return whether a build is due now, which hashes all outputs: only in the first call for a
        roll-back, because every thread may call this.
        """
        known, self._rollbacks = self._rollbacks, rollbacks
        if known == rollbacks:
            return False
        self._foreign = UNKNOWN
        return True

    # Building -------------------------------------------------------------------------------------

    def plan(self) -> BuildPlan:
        """Return what the next build computes: the changed outputs, or all with new functions."""
        everything = self._others_wrote()
        rebuild = self._builds % self._lsh.rebuild == 0
        return BuildPlan(self._builds, rebuild and self._builds > 0, everything or rebuild)

    def build(self, plan: BuildPlan, run_parts: RunParts | None = None) -> NeuronFinder:
        """Hash outputs and fill the other set of tables; return it with its functions.

        `run_parts` may use several threads; the result does not depend on the parts.
        """
        run = run_parts or (lambda function, count: function(0, count))
        functions = self._sets[self.current].functions
        if plan.redraw:
            functions = self._draw(plan.number)
        ids = np.arange(self._neurons)
        if not plan.everything:  # a copy: NumPy counts in two passes, while threads mark outputs
            ids = np.flatnonzero(self._changed.copy())
        order = np.random.default_rng((self._lsh.seed, plan.number)).permutation(self._neurons)
        order = order.astype(np.int32)
        tables = self._sets[self.other].tables

        def hash_part(first: int, last: int) -> None:
            hash_neurons(
                functions,
                self._sketches,
                self._weights,
                ids[first:last],
                self._changed,
                self._codes,
            )

        def fill(first: int, last: int) -> None:
            clear(tables, first, last)
            insert(tables, first, last, self._codes, order)

        run(hash_part, len(ids))
        run(fill, self._lsh.tables)
        return self._sets[self.other]._replace(functions=functions)

    def swap(self, built: NeuronFinder) -> None:
        """Look up outputs from now on in the set that `build` returned."""
        self._sets[self.other] = built
        self.current = self.other
        self._builds += 1

    def _others_wrote(self) -> bool:
        """Whether outputs have changed that this worker has not marked.

        The count of updates in the model may already include batches of this worker that are in
        progress. So other workers are assumed to have written only if these cannot explain the
        count; a change is detected some builds later at the latest.
        """
        foreign = self._model.updates - self._updates
        if foreign - self._in_progress > self._foreign:
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
