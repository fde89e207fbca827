"""Training steps captured once for each batch size as CUDA graphs, and replayed without Python.

Capturing takes some 40 ms, because the algorithms of all products are timed. So a step is captured
with the third batch of its size in a row. The last two batches of an epoch have a size of their
own, whose step is only captured after several epochs.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from hogbatch.config.augmentation import Augmentation
from hogbatch.data.batch import Inputs, Labels
from hogbatch.kernels.contract import NO_SCORES, Hyper, RowScores
from hogbatch.kernels.dropout import Dropout, key_of
from hogbatch.kernels.executor import Executor, Randomness
from hogbatch.kernels.gpu.device import Device

MAX_CAPTURED = 16  # batch sizes times buffers; policies that double and halve use far fewer
IN_A_ROW = 3  # batches of a size, the last of which is captured
IN_ALL = 16  # the same for batches that do not follow one another


class CapturedSteps:
    """Training steps of one network, loss and optimizer; the learning rate may change any time."""

    def __init__(
        self,
        device: Device,
        network: Executor,
        loss: int,
        optimizer: int,
        hyper: Hyper,
        dropout: Dropout | None = None,
        augmentation: Augmentation | None = None,
    ) -> None:
        self._device, self._network = device, network
        self._kinds = loss, optimizer
        self._rate = device.zeros(1, np.float64)
        self._rate_set = 1.0
        # So that the first lease does not wait for NVRTC. For 0, CuPy would need no kernel.
        self._rate.fill(self._rate_set)
        self._hyper = hyper._replace(rate=self._rate)
        self._seeded, self._key = dropout or augmentation, device.zeros(1, np.uint32)
        fraction = 0.0 if dropout is None else dropout.fraction
        self._random = self._seeded and Randomness(fraction, self._key, augmentation)
        self._captured: OrderedDict[tuple[int, int], Callable[[], None]] = OrderedDict()
        self._batches: Counter[int] = Counter()  # that were not replayed, by size
        self._latest = self._in_a_row = 0  # size of the last batches, and their number

    def reserve(self, batch: int, *, sparse: bool) -> None:
        """Allocate for batches of `batch` rows; may run out of memory."""
        moved = True  # also if memory runs out: the old scratch arrays are freed first
        try:
            moved = self._network.reserve(batch, sparse=sparse)
        finally:
            if moved:
                self.clear()  # captured steps use the old scratch arrays

    def clear(self) -> None:
        """Discard all captured steps; to be called when the arrays of a slot change."""
        if self._captured:
            self._device.synchronize()  # one of them may be running
        self._captured.clear()

    def train(
        self, slot: int, inputs: Inputs, labels: Labels, rows: Any, numbers: Any, totals: Any
    ) -> None:
        """Do one update from `rows`[B], whose numbers in the set are `numbers`[B].

        Calls with equal `slot` and B must pass the same arrays; their contents may differ.
        """
        key = size, _ = len(rows), slot
        self._in_a_row = self._in_a_row + 1 if size == self._latest else 1
        self._latest = size
        if (repeat := self._captured.get(key)) is not None:
            repeat()
            self._captured.move_to_end(key)
            return
        self.reserve(size, sparse=len(inputs.indptr) > 0)
        self._batches[size] += 1
        network, hyper = self._network, self._hyper  # not self: avoids a reference cycle
        (loss, optimizer), random = self._kinds, self._random

        def step() -> None:
            network.train_batch(
                inputs, labels, rows, loss, optimizer, hyper, totals, numbers, random
            )

        if self._in_a_row >= IN_A_ROW or self._batches[size] >= IN_ALL:
            self._captured[key] = self._device.capture(step)
            if len(self._captured) > MAX_CAPTURED:
                self._captured.popitem(last=False)
        else:
            step()

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        if rate != self._rate_set:
            self._rate.fill(rate)
            self._rate_set = rate

    def set_update(self, number: int) -> None:
        """Set the number of the next update, on which dropout and augmentation depend."""
        if self._seeded is not None:
            self._key.fill(key_of(self._seeded.seed, number)[0])

    def evaluate(
        self,
        inputs: Inputs,
        labels: Labels,
        rows: Any,
        totals: Any,
        stored: RowScores = NO_SCORES,
    ) -> None:
        """Do what `Executor.evaluate_batch` does."""
        self.reserve(len(rows), sparse=len(inputs.indptr) > 0)
        self._network.evaluate_batch(inputs, labels, rows, self._kinds[0], totals, stored)
