"""The replica of a rehearsed GPU worker: trained by the kernels of the CPU, and exchanged in parts.

It computes what `hogbatch.workers.replica` and `parts` compute, and takes no simulated time.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs
from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, SUMMED_SLOTS, TOTALS, Floats, Hyper
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings, ModelView, layer_table
from hogbatch.simulate.rehearsal.changes import (
    add_damped,
    add_scaled_rows,
    rejoin_and_take,
    rejoin_rows,
    take_last,
    take_rows,
    touched_features,
)
from hogbatch.store.merge import MERGE_RULES, MergeRule
from hogbatch.store.staleness import DAMPING_SCALE
from hogbatch.wire.messages import Lease
from hogbatch.workers.compute.assignment import Assignment

RowNumbers = NDArray[np.int64]  # [N] of the training set
LINE = 64  # bytes of a cache line
NO_FENCE = 0  # of batches: a GPU worker checks its fence only before it merges


def aligned(size: int) -> Floats:
    """Return an uninitialised float32[size] that begins at a cache line, as shared memory does."""
    memory = np.empty(4 * size + LINE, np.uint8)
    skipped = -memory.ctypes.data % LINE
    return memory[skipped : skipped + 4 * size].view(np.float32)


class ExchangedPart(Protocol):
    """A part of the parameters, as `hogbatch.workers.parts.ReplicaPart`."""

    @property
    def nbytes(self) -> int:
        """Bytes copied between host and device for one interval: its merge and the pull before."""

    def begin(self, rows: RowNumbers) -> None:
        """Pull what an interval over `rows` needs; all changes taken must have been merged."""

    def take(self, upcoming: RowNumbers | None) -> bool:
        """Join what was fetched and take the change of the interval; return whether it is finite.

        `upcoming` are the rows of the next interval, or None.
        """

    def merge(self, fraction: float) -> None:
        """Add the change taken, times `fraction`, to the shared parameters."""

    def fetch(self) -> None:
        """Pull the shared parameters for the next `take`."""

    def reset(self) -> None:
        """Clear the replica; `begin` must follow."""


class FlatRange:
    """A contiguous range of the parameters, exchanged as a whole.

    What is overwritten before it is read is not computed: `begin` pulls everything.
    `damps_weights`: whether `merge` adds less to the parameters that others have changed.
    """

    def __init__(
        self, params: Floats, shared: Floats, rule: MergeRule, *, damps_weights: bool
    ) -> None:
        self._params, self._shared, self._rule = params, shared, rule
        self._base, self._change, self._fetched = (aligned(params.size) for _ in range(3))
        self._seen = aligned(params.size) if damps_weights else None
        self._pulled = self._base  # the array of what was pulled last
        self._begin_follows = False

    @property
    def nbytes(self) -> int:
        return 2 * self._params.nbytes

    def begin(self, rows: RowNumbers) -> None:
        self._params[:] = self._shared
        self._base[:] = self._shared
        self._pulled, self._begin_follows = self._base, False

    def take(self, upcoming: RowNumbers | None) -> bool:
        self._begin_follows = upcoming is None
        if self._seen is not None:
            self._seen[:] = self._base
        if self._begin_follows and self._rule.takes_change:
            return bool(take_last(self._params, self._base, self._pulled, self._change))
        if self._pulled is self._base:
            self._fetched[:] = self._base
        return bool(rejoin_and_take(self._params, self._base, self._fetched, self._change))

    def merge(self, fraction: float) -> None:
        if self._seen is not None:
            add_damped(DAMPING_SCALE, fraction, self._seen, self._change, self._shared)
            return
        merged = self._change if self._rule.takes_change else self._base
        self._rule.merge(self._shared, merged, fraction)

    def fetch(self) -> None:
        if not self._begin_follows:
            self._fetched[:] = self._shared
            self._pulled = self._fetched

    def reset(self) -> None:
        for array in (self._params, self._base, self._fetched):
            array[:] = 0


class TouchedRows:
    """Rows of [F, H] arrays, of which only those are exchanged that an interval touches.

    `tables` are the replica's and the shared array of each table, flat.
    """

    def __init__(self, inputs: Inputs, width: int, tables: Sequence[tuple[Floats, Floats]]) -> None:
        self._inputs, self._width = inputs, width
        self._tables = [(*pair, aligned(pair[0].size)) for pair in tables]
        self._changes = [aligned(pair[0].size) for pair in tables]
        features = tables[0][0].size // width
        self._stamps, self._stamp = np.zeros(features, np.int32), 0
        self._found = [np.empty(features, np.int32) for _ in range(2)]
        self.touched = self._found[0][:0]  # by the interval that is being trained
        self._taken = self.touched  # by the one whose change was taken last

    @property
    def nbytes(self) -> int:
        """A merge reads and writes the rows in the memory of the host."""
        row = self._width * self._changes[0].itemsize
        return 3 * len(self.touched) * row * len(self._tables)

    def begin(self, rows: RowNumbers) -> None:
        self.touched = self._pull(rows)

    def take(self, upcoming: RowNumbers | None) -> bool:
        following = self.touched[:0] if upcoming is None else self._pull(upcoming)
        finite = [
            take_rows(self.touched, self._width, params, base, change)
            for (params, _, base), change in zip(self._tables, self._changes, strict=True)
        ]
        self._taken, self.touched = self.touched, following
        return all(finite)

    def merge(self, fraction: float) -> None:
        for (_, shared, _), change in zip(self._tables, self._changes, strict=True):
            add_scaled_rows(fraction, self._taken, self._width, change, shared)

    def fetch(self) -> None:
        """Do nothing: `begin` and `take` have pulled the rows that they need."""

    def reset(self) -> None:
        for params, _, base in self._tables:
            params[:] = 0
            base[:] = 0

    def _pull(self, rows: RowNumbers) -> NDArray[np.int32]:
        """Pull the rows that the next interval touches, and return them."""
        self._stamp += 1
        self._found.reverse()  # the other list still has those of the current interval
        found = touched_features(self._inputs, rows, self._stamps, self._stamp, self._found[0])
        touched = self._found[0][:found]
        for params, shared, base in self._tables:
            rejoin_rows(touched, self._width, shared, params, base)
        return touched


class RehearsedReplica:
    """The parameters and optimizer slots of one GPU worker.

    With `by_rows`, only the touched rows of the sparse first layer are exchanged; the merge rule
    must be additive.
    """

    def __init__(self, assignment: Assignment, *, by_rows: bool) -> None:
        self._assignment = assignment
        self._shared = shared = assignment.model
        self.params = aligned(shared.params.size)
        self.slots = aligned(shared.first.size), aligned(shared.second.size)
        self.steps = np.zeros(1, np.int64)  # batches that the slots include
        self.totals = np.zeros(TOTALS)  # of the batches since the last `take`
        self.taken_totals = np.zeros(TOTALS)
        layers = assignment.network.layer_views()
        self._loop = loop_for(layers, sparse=assignment.train.sparse, hashed=False)
        table = layer_table(layers)
        self._view = ModelView(table, self.params, *self.slots, self.steps, *self.slots)
        self._shared_view = self._view._replace(params=shared.params)
        self._head = np.full(layers[0].fan_in, -1, np.int32)
        self._line = np.full(8, NO_FENCE, np.int64)
        self._rows = self._touched_rows() if by_rows else None
        self._parts: list[ExchangedPart] = self._flat_parts() if self._rows is None else []
        if self._rows is not None:
            start = layers[0].bias
            self._parts = [self._rows, self._flat(self.params[start:], shared.params[start:])]
        self.reset()

    @property
    def touched(self) -> int | None:
        """The number of touched rows in the current interval; None if all are exchanged."""
        return None if self._rows is None else len(self._rows.touched)

    @property
    def exchanged_bytes(self) -> int:
        """Bytes copied between host and device for the current interval."""
        return sum(part.nbytes for part in self._parts)

    @property
    def refreshed_bytes(self) -> int:
        """Bytes that a real replica copies to the device before it evaluates."""
        first = self._assignment.network.layer_views()[0]
        sums = first.weights + first.fan_in * first.fan_out if self._exchanges_sums else 0
        return self.params.nbytes + sums * self.params.itemsize

    def begin(self, rows: RowNumbers) -> None:
        """Pull for an interval over `rows`; all changes taken must have been merged."""
        for part in self._parts:
            part.begin(rows)

    def train(self, rows: RowNumbers, batch_size: int, rate: float) -> None:
        """Train on `rows` of the training set, in batches."""
        train, spec = self._assignment.train, self._assignment.welcome.optimizer
        hyper = Hyper(rate, spec.l2, spec.momentum, spec.beta2, spec.epsilon)
        self._loop.train(
            self._view,
            train.inputs,
            train.labels,
            rows,
            self._settings(batch_size),
            hyper,
            self._head,
            self._line,
            self.totals,
        )

    def take(self, upcoming: RowNumbers | None) -> bool:
        """Join what was fetched, and take the change and the totals of the current interval.

        `upcoming` are the rows of the next interval, None if `begin` follows. Returns whether the
        change is finite.
        """
        finite = [part.take(upcoming) for part in self._parts]
        self.taken_totals[:] = self.totals
        self.totals[:] = 0
        return all(finite)

    def merge(self, fraction: float) -> None:
        """Add the change taken, times `fraction`, to the shared parameters."""
        for part in self._parts:
            part.merge(fraction)

    def fetch(self) -> None:
        """Pull the shared parameters for the next `take`."""
        for part in self._parts:
            part.fetch()

    def reset(self) -> None:
        """Clear the replica and reload the optimizer slots; `begin` must follow."""
        for slot, shared in zip(self.slots, (self._shared.first, self._shared.second), strict=True):
            slot[:] = shared
        for part in self._parts:
            part.reset()
        self.totals[:] = 0
        self.steps[:] = self._shared.steps

    def evaluate(self, lease: Lease) -> NDArray[np.float64]:
        """Return the totals of the shared parameters over the rows of `lease`.

        A real replica pulls them first. Here this is not necessary, because `begin` follows.
        """
        chosen, totals = self._assignment.evaluated(lease), np.zeros(TOTALS)
        self._loop.evaluate(
            self._shared_view,
            chosen.inputs,
            chosen.labels,
            np.arange(lease.start, lease.stop),
            self._settings(lease.batch_size),
            self._line,
            totals,
        )
        return totals

    def _settings(self, batch_size: int) -> BatchSettings:
        assignment = self._assignment
        kinds = LOSSES[assignment.network.loss], OPTIMIZERS[assignment.welcome.optimizer.name]
        return BatchSettings(batch_size, *kinds, NO_FENCE, 1)

    @property
    def _rule(self) -> MergeRule:
        return MERGE_RULES[self._assignment.welcome.merge]

    @property
    def damps_weights(self) -> bool:
        """Whether `merge` damps changes by weights."""
        damping = self._assignment.welcome.staleness_damping
        return damping == "per-weight" and self._rule.additive and self._rows is None

    @property
    def _exchanges_sums(self) -> bool:
        """Whether Adagrad's slots of a sparse first layer are exchanged with its weights."""
        kind = OPTIMIZERS[self._assignment.welcome.optimizer.name]
        return self._assignment.train.sparse and kind in SUMMED_SLOTS and self._rule.additive

    def _tables(self) -> list[tuple[Floats, Floats]]:
        """The arrays of which the first layer is exchanged, as pairs: the replica's, the shared."""
        tables = [(self.params, self._shared.params)]
        return [*tables, (self.slots[0], self._shared.first)] if self._exchanges_sums else tables

    def _touched_rows(self) -> TouchedRows:
        first = self._assignment.network.layer_views()[0]
        cells = slice(first.weights, first.weights + first.fan_in * first.fan_out)
        tables = [(own[cells], shared[cells]) for own, shared in self._tables()]
        return TouchedRows(self._assignment.train.inputs, first.fan_out, tables)

    def _flat_parts(self) -> list[ExchangedPart]:
        """All parameters, and the slots that are exchanged."""
        first = self._assignment.network.layer_views()[0]
        params, *sums = self._tables()
        end = first.weights + first.fan_in * first.fan_out
        ranges = [self._flat(*params, self.damps_weights)]
        return [*ranges, *(self._flat(own[:end], shared[:end]) for own, shared in sums)]

    def _flat(self, own: Floats, shared: Floats, damps_weights: bool = False) -> FlatRange:
        return FlatRange(own, shared, self._rule, damps_weights=damps_weights)
