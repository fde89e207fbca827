"""The seconds that a batch takes on one CPU thread, from the description of a server.

Times that overlap (arithmetic, and the transfer of the weights that it needs) are combined as the
square root of the sum of their squares: close to the larger one, without a sharp edge where the two
are equal. Times that do not overlap are added. The formulas are explained in docs/servers.md.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import LINEAR, RELU
from hogbatch.kernels.layers import LayerView
from hogbatch.simulate.hardware.description import Cpu
from hogbatch.simulate.hardware.workload import Workload, parameters, weights

FLOAT = 4  # bytes
LINE = 64  # bytes of a cache line
CALL = 3  # times as long as a dense layer's own time: a call of a compiled kernel from Python
CELLS_OF_VALUE = 2  # of dense layers, whose time a value below them takes
BARRIERS = 2  # of a team in each batch
SKETCH_HASHES = 128  # hashes of a sketch of 512 bits, in units of one hash of a row
SKETCHED = 0.25  # fraction of the active outputs with a new sketch at each update


class Passes(NamedTuple):
    """Seconds of the two passes of a batch through a layer."""

    up: float  # forward
    both: float  # with backward and update


class Touched(NamedTuple):
    """Expected numbers of features that a batch touches."""

    all: float
    hot: float  # the most frequent ones: their weights stay in the own cache
    by_others: float  # those of the hot ones that another thread has written last


def mean_found(counts: NDArray[np.int32], bucket: int) -> float:
    """Mean number of outputs in the buckets of an output, one in each of L hash tables.

    `counts`[L, 2**bits] are the outputs in each bucket, of which `bucket` are kept. An output that
    is in several of the buckets counts several times. The buckets of a row are about as full.
    """
    filled = np.minimum(counts, bucket).astype(np.float64)
    return float(((filled**2).sum(axis=1) / np.maximum(filled.sum(axis=1), 1.0)).sum())


class CpuCost:
    """Costs of batches if `threads` threads train one model at the same time.

    `members` of them compute each batch together, as a team (`hogbatch.kernels.cpu.team`). The
    members of a team are on neighbouring cores.
    """

    def __init__(self, cpu: Cpu, workload: Workload, threads: int, members: int = 1) -> None:
        self._cpu, self._workload, self._members = cpu, workload, members
        self._together = min(threads, cpu.threads)
        self._siblings = max(1.0, self._together / cpu.cores)  # threads of a core
        self._per_cache = cpu.cores_per_cache * self._siblings
        self._smt = max(1.0, self._siblings / cpu.smt_gain)
        self._cached_seconds, self._memory_seconds = self._streaming()
        self._count_others(min(members, self._together))
        self._touched_features: dict[int, Touched] = {}  # by rows of a batch
        last = len(workload.layers) - 1
        self._linear = workload.sparse and last == 0 and workload.layers[0].fan_out == 1

    def _count_others(self, team: int) -> None:
        """Set the seconds for bytes that others have written; `team` threads are in the own team.

        The others are those with the same last cache, and those with another one.
        """
        near, near_team = (min(count, self._per_cache) for count in (self._together, team))
        far, far_team = self._together - near, team - near_team
        self._team_others = near_team - 1, far_team
        self._exchange_seconds = self._mean_fetch(near_team - 1, far_team)  # of the team's threads
        self._line_seconds = self._mean_fetch(near - 1, far)  # of all threads
        # Each of the other teams has written all weights since the last batch.
        self._fetch_seconds = self._mean_fetch(near - near_team, far - far_team)
        if self._together == team:
            self._fetch_seconds = (1 - 1 / team) * self._exchange_seconds

    def train_seconds(self, rows: int, stored: int, active: int = 0, found: float = 0.0) -> float:
        """Seconds of one batch of `rows` rows with `stored` stored values in total.

        Of a hashed layer, `active` is the number of outputs that the batch computes (0: as many as
        its settings allow), and `found` the number of outputs in the buckets of a row, in which an
        output may occur several times (0: outputs are spread evenly over the buckets).
        """
        return sum(self.stage_seconds(rows, stored, active, found))

    def stage_seconds(
        self, rows: int, stored: int, active: int = 0, found: float = 0.0
    ) -> tuple[float, ...]:
        """The parts of `train_seconds`: forward passes first to last, then backward passes last to
        first, each with the update of the layer.

        Of a team: its first phase, and the updates of the layers last to first. Of a network with a
        backbone: those of `hogbatch.kernels.cpu.backbone`.
        """
        if self._linear:
            sparse, lines = self._cpu.sparse, LINE * self._touched(rows, LINE).by_others
            seconds = rows * sparse.linear_row_seconds + stored * sparse.linear_value_seconds
            half = self._smt * (seconds + lines * self._line_fetching()) / 2
            return half, half
        layers = range(len(self._workload.layers))
        passes = [self._passes(index, rows, stored, active, found) for index in layers]
        up = [each.up for each in passes]
        up[0] += self._start_seconds(rows)
        if self._members > 1:
            up = [sum(up)]
        down = [each.both - each.up for each in reversed(passes)]
        if self._workload.backbone:
            below, step = self._backbone_seconds(rows)
            up, down = [below.up, sum(up) + sum(down)], [below.both - below.up, step]
        return tuple(self._smt * seconds for seconds in (*up, *down))

    def _start_seconds(self, rows: int) -> float:
        """Seconds of a batch that do not depend on the layers."""
        own = math.ceil(rows / self._members)
        # Members arrive one after the other, each with the cache line that another has written.
        memory, (near, far) = self._cpu.memory, self._team_others
        one_barrier = memory.barrier_seconds * (near + far * memory.near_speed / memory.far_speed)
        waiting = BARRIERS * one_barrier
        return self._cpu.dense.batch_seconds + own * self._cpu.dense.row_seconds + waiting

    def _passes(self, index: int, rows: int, stored: int, active: int, found: float) -> Passes:
        workload = self._workload
        layer = workload.layers[index]
        if index == 0 and workload.sparse:
            own = math.ceil(rows / self._members)
            return self._sparse_seconds(layer, own, math.ceil(stored / self._members))
        if self._members > 1:
            return self._team_seconds(layer, rows, first=index == 0)
        if workload.lsh is not None and layer is workload.layers[-1]:
            return self._hashed_seconds(layer, rows, active, found)
        return self._dense_seconds(layer, rows, first=index == 0 and not workload.backbone)

    def evaluate_seconds(self, rows: int, stored: int) -> float:
        """Seconds of the scores and losses of `rows` rows."""
        workload, dense, sparse = self._workload, self._cpu.dense, self._cpu.sparse
        seconds = dense.batch_seconds + rows * dense.row_seconds
        for index, layer in enumerate(workload.layers):
            seconds += self._cell_seconds(layer, rows) / 2
            if index == 0 and workload.sparse:
                values = sparse.value_seconds + layer.fan_out * sparse.cell_seconds
                seconds += stored * values / 2
            else:
                flops = 2.0 * rows * weights(layer)
                arithmetic = flops / dense.flops
                nbytes = FLOAT * weights(layer)
                seconds += math.hypot(arithmetic, nbytes * self._cached_seconds)
                seconds += nbytes * self._memory_seconds
        return self._smt * (seconds + self._backbone_seconds(rows)[0].up)

    def rebuild_seconds(self, outputs: int) -> float:
        """Seconds of hashing `outputs` outputs and putting them into new tables."""
        lsh, hashed = self._workload.lsh, self._cpu.hashed
        if lsh is None:
            return 0.0
        each = lsh.hashes * hashed.hash_seconds + hashed.insert_seconds
        return outputs * lsh.tables * each

    def _dense_seconds(self, layer: LayerView, rows: int, *, first: bool) -> Passes:
        """A dense layer; the first has no gradient to pass on."""
        cells, dense = weights(layer), self._cpu.dense
        fan_in = self._workload.features if first else layer.fan_in
        arithmetic = 2.0 * rows * fan_in * layer.fan_out * (2 if first else 3) / dense.flops
        products, steps = self._products_seconds(arithmetic, cells), self._step_seconds(cells)
        cell_seconds = self._cell_seconds(layer, rows)
        up = products / (2 if first else 3) + dense.layer_seconds / 2
        up += cell_seconds * self._cells_up(layer)
        return Passes(up, products + steps + dense.layer_seconds + cell_seconds)

    def _products_seconds(self, arithmetic: float, cells: int) -> float:
        """Products with `cells` weights; `arithmetic` seconds if these cost nothing."""
        # Forward reads the weights, backward reads and update writes them.
        cached = FLOAT * cells * self._cached_seconds
        in_memory = FLOAT * cells * self._memory_seconds
        fetched = FLOAT * cells * self._fetch_seconds
        return math.hypot(arithmetic, 3 * cached, fetched) + 3 * in_memory

    def _step_seconds(self, cells: float) -> float:
        """The update of the slots of `cells` weights, which are read and written."""
        nbytes = 2 * FLOAT * cells * self._workload.slots
        if not nbytes:
            return 0.0
        step = math.hypot(cells * self._cpu.dense.step_seconds, nbytes * self._cached_seconds)
        return step + nbytes * self._memory_seconds

    def _backbone_seconds(self, rows: int) -> tuple[Passes, float]:
        """The passes through the layers below the dense ones, and the update of these layers.

        The gradient of the inputs of the first one is not needed, but is counted: products with
        its few channels are slower than others.
        """
        dense = self._cpu.dense
        up, both, updated = 0.0, 0.0, 0
        for layer in self._workload.backbone:
            cells = parameters(layer)
            if layer.by_rows:
                cells = min(cells, rows * math.prod(layer.outputs))
            arithmetic = 2.0 * rows * layer.products * 3 / dense.flops
            products = self._products_seconds(arithmetic, cells)
            values = rows * (math.prod(layer.inputs) + layer.values)
            others = CELLS_OF_VALUE * values * dense.cell_seconds + 2 * CALL * dense.layer_seconds
            up, both = up + products / 3 + others / 2, both + products + others
            updated += cells
        calls = CALL * len(self._workload.backbone) * dense.layer_seconds
        return Passes(up, both), self._step_seconds(updated) + calls

    def _team_seconds(self, layer: LayerView, rows: int, *, first: bool) -> Passes:
        """A dense layer on a thread of a team: `up` is the first phase, of its own rows.

        In the second phase it updates its own rows of weights.
        """
        members, dense = self._members, self._cpu.dense
        own, others = math.ceil(rows / members), rows - math.ceil(rows / members)
        fan_in = self._workload.features if first else layer.fan_in
        arithmetic = 2.0 * fan_in * layer.fan_out / dense.flops
        cells = weights(layer)
        cached = FLOAT * cells * self._cached_seconds
        in_memory = FLOAT * cells * self._memory_seconds
        # Forward reads the weights, which others have written, and backward reads them again.
        fetched = FLOAT * cells * self._fetch_seconds
        reads = 1 if first else 2
        up = math.hypot(reads * own * arithmetic, reads * cached, fetched) + reads * in_memory
        # The update reads what the others have computed of their rows.
        exchanged = FLOAT * others * (layer.fan_in / members + layer.fan_out)
        down = math.hypot(rows * arithmetic / members, cached / members)
        down += exchanged * self._exchange_seconds + in_memory / members
        down += self._step_seconds(cells / members)
        up += self._cell_seconds(layer, own) + dense.layer_seconds / 2
        return Passes(up, up + down + dense.layer_seconds / 2)

    def _cells_up(self, layer: LayerView) -> float:
        """The fraction of `_cell_seconds` before the backward pass; the loss belongs to it."""
        return 1.0 if layer is self._workload.layers[-1] else 0.5

    def _cell_seconds(self, layer: LayerView, rows: int) -> float:
        """Seconds of a layer's activations, or of the loss, and of their gradients."""
        dense, cells = self._cpu.dense, rows * layer.fan_out
        if layer is self._workload.layers[-1]:
            return cells * (dense.cell_seconds + dense.score_seconds)
        exponential = layer.activation not in (LINEAR, RELU)
        return cells * (dense.cell_seconds + exponential * dense.exp_seconds)

    def _sparse_seconds(self, layer: LayerView, rows: int, stored: int) -> Passes:
        workload, sparse, width = self._workload, self._cpu.sparse, layer.fan_out
        arrays = 1 + workload.slots
        features = self._touched(rows, FLOAT * width * (1 + self._siblings * workload.slots))
        share = min(1.0, stored / features.all) if features.all else 0.0  # it may have few values
        touched = share * features.all
        values = stored * (sparse.value_seconds + width * sparse.cell_seconds)
        step = touched * (sparse.touched_seconds + arrays * width * sparse.slot_seconds)
        row = FLOAT * width * arrays
        fetched = share * features.by_others * row * self._line_fetching()
        cold = share * (features.all - features.hot)
        fetched += cold * row / LINE * sparse.line_seconds
        cells = self._cell_seconds(layer, rows)
        overhead = self._cpu.dense.layer_seconds
        # The forward pass fetches the weights, the update their slots.
        up = values / 2 + fetched / arrays + cells * self._cells_up(layer) + overhead / 2
        return Passes(up, values + step + fetched + cells + overhead)

    def _hashed_seconds(self, layer: LayerView, rows: int, active: int, found: float) -> Passes:
        workload, hashed, dense = self._workload, self._cpu.hashed, self._cpu.dense
        lsh, width = workload.lsh, layer.fan_in
        assert lsh is not None
        active = active or min(layer.width, lsh.most + lsh.random + round(rows * workload.labels))
        sketch = SKETCH_HASHES * hashed.hash_seconds
        found = found or lsh.tables * min(lsh.bucket, layer.width / (1 << lsh.bits))
        hashes = lsh.tables * lsh.hashes * hashed.hash_seconds
        per_row = hashes + sketch + found * hashed.candidate_seconds
        arrays = 1 + workload.slots
        per_active = hashed.active_seconds + SKETCHED * sketch
        per_active += width * arrays * hashed.step_seconds
        arithmetic = 6.0 * rows * active * width / dense.flops
        loss = rows * active * (dense.cell_seconds + dense.score_seconds)
        # The forward pass copies the weights and passes the gradient down with this copy.
        up = rows * per_row + active * hashed.active_seconds + arithmetic * 2 / 3 + loss
        return Passes(up, rows * per_row + active * per_active + arithmetic + loss)

    def _touched(self, rows: int, nbytes: float) -> Touched:
        """The features of `rows` rows, for each of which `nbytes` are in the private cache."""
        touched = self._touched_features.get(rows)
        if touched is None:  # the sums take longer than all the rest, and batch sizes repeat
            hot, workload = self._cpu.memory.private_cache / nbytes, self._workload
            touched = self._touched_features[rows] = Touched(
                workload.touched(rows),
                workload.touched(rows, hot),
                workload.touched_by_others(rows, self._together, hot),
            )
        return touched

    def _line_fetching(self) -> float:
        """Seconds per byte of single lines that other threads have written last."""
        relative = self._cpu.memory.near_speed * self._line_seconds  # 1: all share a cache
        return self._cpu.sparse.fetch_seconds / LINE * relative

    def _streaming(self) -> tuple[float, float]:
        """Seconds per byte of weights, read or written once per batch: from caches, from memory.

        Prefetching hides the first behind arithmetic, but not the second.
        """
        memory, params = self._cpu.memory, FLOAT * self._workload.parameters
        # All threads share the weights, but each team has its own slots.
        slots_of_thread = params * self._workload.slots / self._members
        of_core = params + self._siblings * slots_of_thread
        of_cache = params + min(self._together, self._per_cache) * slots_of_thread
        outside = max(0.0, 1 - memory.private_cache / of_core)
        in_memory = of_cache / (of_cache + memory.shared_cache)
        of_memory = min(memory.memory_speed, memory.server_speed / self._together)
        cached = 1 / memory.private_speed + outside / memory.shared_speed
        return cached, in_memory / of_memory

    def _mean_fetch(self, near: float, far: float) -> float:
        """Seconds per byte that one of other threads has written last.

        `near` of these share the last cache, `far` do not.
        """
        memory = self._cpu.memory
        if near + far <= 0:
            return 0.0
        return (near / memory.near_speed + far / memory.far_speed) / (near + far)
