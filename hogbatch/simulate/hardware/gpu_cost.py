"""The seconds that a batch and a merge take on a GPU, from the description of a server.

A product keeps the device busy only if its result has enough cells: with `fill_cells` cells it runs
at half of its speed. Every operation of a batch takes at least the time of a launch. `gpu:host` is
described by the same figures, measured with NumPy.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from hogbatch.kernels.layers import LayerView
from hogbatch.simulate.hardware.cpu_cost import FLOAT
from hogbatch.simulate.hardware.description import ServerGpu
from hogbatch.simulate.hardware.workload import Workload, parameters, weights
from hogbatch.workers.compute.device_profile import Profile
from hogbatch.workers.compute.measured_batches import densifying_is_faster, measure_sizes

LONGEST_SUM = 512  # terms of a sum that are not divided among multiprocessors
PATCH_PASSES = 5  # reads and writes of the patches of a convolution
LAYER_LAUNCHES = 6  # of a dense layer in a batch
CELL_PASSES = 6  # reads and writes of a cell of activations or scores in a batch
HAND_OVER = 8  # arrays of parameters that the operation reads or writes
ROWS_HAND_OVER = 9  # the same for touched rows, with which it is two operations
SPARSE_LINE = 32  # bytes; the least that the link transfers


class MergeTimes(NamedTuple):
    """The seconds of one merge."""

    blocking: float  # taking the change, during which the device does not train
    merge: float  # the change is added to the shared parameters, which are pulled
    pull: float  # before an interval that does not follow another: a copy, and the touched rows


class GpuCost:
    """Costs of batches and merges on one GPU."""

    def __init__(self, gpu: ServerGpu, workload: Workload) -> None:
        self._gpu, self._workload = gpu, workload
        self.densify = workload.may_densify and densifying_is_faster(
            self._train_seconds, workload.rows
        )

    def train_seconds(self, rows: int) -> float:
        return self._train_seconds(rows, self.densify)

    def evaluate_seconds(self, rows: int) -> float:
        """Seconds of the scores and losses of `rows` rows."""
        gpu, workload = self._gpu, self._workload
        seconds = gpu.step_seconds + sum(self._backbone_seconds(rows)) / 3
        for index, layer in enumerate(workload.layers):
            seconds += self._cell_seconds(layer, rows) / 2 + gpu.launch_seconds
            if index == 0 and workload.sparse:
                seconds += self._value_seconds(layer, rows) / 2
            else:
                seconds += self._product(rows, layer.fan_out, layer.fan_in)
        return seconds

    def profile(self, rows: int) -> Profile:
        """(rows, seconds) of the batch sizes that a worker measures before it trains on `rows`."""
        return tuple(measure_sizes(self.train_seconds, rows))

    def merge(self, touched: int | None) -> MergeTimes:
        """Times of a merge of all parameters, or of `touched` rows of a sparse first layer only.

        The sums of Adagrad that belong to the weights of a sparse first layer are merged with them.
        """
        first, gpu = self._workload.layers[0], self._gpu
        cells, slots = self._workload.parameters, self._workload.exchanged_slots
        if touched is None:
            return self._flat(cells + slots * weights(first))
        flat = self._flat(cells - weights(first))
        nbytes = touched * max(FLOAT * first.fan_out, SPARSE_LINE) * (1 + slots)
        on_device = ROWS_HAND_OVER * nbytes / gpu.exchange_speed + 3 * gpu.launch_seconds
        pulled = nbytes / gpu.mapped_speed + gpu.link_seconds
        added = 2 * nbytes / gpu.mapped_speed + gpu.link_seconds
        blocking, merge = flat.blocking + on_device + pulled, flat.merge + added
        return MergeTimes(blocking, merge, flat.pull + pulled)

    def _flat(self, cells: int) -> MergeTimes:
        """Times of a merge of `cells` parameters."""
        gpu, nbytes = self._gpu, FLOAT * cells
        blocking = HAND_OVER * nbytes / gpu.exchange_speed + 2 * gpu.launch_seconds
        merge = 2 * nbytes / gpu.mapped_speed + gpu.link_seconds
        return MergeTimes(blocking, merge, nbytes / gpu.link_speed + gpu.link_seconds)

    def _train_seconds(self, rows: int, densify: bool) -> float:
        gpu, workload = self._gpu, self._workload
        sparse = workload.sparse and not densify
        seconds = gpu.step_seconds + sum(self._backbone_seconds(rows))
        stepped = float(sum(map(parameters, workload.backbone)))
        for index, layer in enumerate(workload.layers):
            seconds += self._cell_seconds(layer, rows) + LAYER_LAUNCHES * gpu.launch_seconds
            if index == 0 and sparse:
                touched = min(rows * workload.stored, workload.touched(rows)) * layer.fan_out
                seconds += self._value_seconds(layer, rows) + touched * gpu.touched_seconds
            else:
                seconds += self._product(rows, layer.fan_out, layer.fan_in)
                seconds += self._product(layer.fan_in, layer.fan_out, rows)
                if index > 0 or workload.backbone:
                    seconds += self._product(rows, layer.fan_in, layer.fan_out)
                stepped += weights(layer)
        if workload.sparse and densify:
            seconds += FLOAT * rows * workload.layers[0].fan_in / gpu.memory_speed
        # The gradient is written and read, the weights and each slot are read and written.
        arrays = 4 + 2 * workload.slots
        return seconds + FLOAT * stepped * arrays / gpu.memory_speed

    def _backbone_seconds(self, rows: int) -> Iterator[float]:
        """Yield the seconds of a batch in each layer below the dense ones.

        The sums over all rows and cells, for the gradients of weights, are divided if they are
        long; the others are computed one after the other.
        """
        gpu = self._gpu
        for layer in self._workload.backbone:
            values = CELL_PASSES * layer.values + PATCH_PASSES * layer.patches
            together = min(rows * math.prod(layer.inputs[:2]), LONGEST_SUM) * (layer.depth > 0)
            filling = (layer.depth + together) * gpu.fill_cells
            seconds = 2 * (3 * rows * layer.products + filling) / gpu.flops
            yield seconds + FLOAT * rows * values / gpu.memory_speed
            yield layer.launches * gpu.launch_seconds

    def _product(self, rows: float, columns: float, inner: float) -> float:
        """Seconds of a product with rows x columns cells, each a sum of `inner` terms."""
        return 2 * inner * (rows * columns + self._gpu.fill_cells) / self._gpu.flops

    def _cell_seconds(self, layer: LayerView, rows: int) -> float:
        cells = rows * layer.fan_out
        scores = cells if layer is self._workload.layers[-1] else 0
        passes = CELL_PASSES * FLOAT * cells / self._gpu.memory_speed
        return passes + scores * self._gpu.score_seconds

    def _value_seconds(self, layer: LayerView, rows: int) -> float:
        """Forward and step of a sparse first layer."""
        gpu = self._gpu
        each = gpu.value_seconds + layer.fan_out * gpu.cell_seconds
        return rows * self._workload.stored * each
