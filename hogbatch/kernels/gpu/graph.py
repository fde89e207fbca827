"""Training steps captured once for each batch size as CUDA graphs, and replayed without Python."""

from collections import OrderedDict
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
        # None: the step has run once and is captured the next time.
        self._captured: OrderedDict[tuple[int, int], Callable[[], None] | None] = OrderedDict()

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
        key = len(rows), slot
        if (repeat := self._captured.get(key)) is not None:
            repeat()
            self._captured.move_to_end(key)
            return
        self.reserve(len(rows), sparse=len(inputs.indptr) > 0)
        network, hyper = self._network, self._hyper  # not self: avoids a reference cycle
        (loss, optimizer), random = self._kinds, self._random

        def step() -> None:
            network.train_batch(
                inputs, labels, rows, loss, optimizer, hyper, totals, numbers, random
            )

        if key in self._captured:
            self._store(key, self._device.capture(step))
        else:
            step()
            self._store(key, None)

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

    def _store(self, key: tuple[int, int], step: Callable[[], None] | None) -> None:
        self._captured[key] = step
        self._captured.move_to_end(key)
        while len(self._captured) > MAX_CAPTURED:
            self._captured.popitem(last=False)
