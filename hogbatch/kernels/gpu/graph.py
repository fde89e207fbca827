"""Training steps that are recorded once for each batch size and repeated without Python."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from hogbatch.data.batch import Inputs, Labels
from hogbatch.kernels.contract import Hyper
from hogbatch.kernels.executor import Executor
from hogbatch.kernels.gpu.device import Device

MAX_RECORDED = 16  # batch sizes times buffers; policies that double and halve meet far fewer


class Steps:
    """Steps of one network, with one loss and one optimizer; the rate may change at any time."""

    def __init__(
        self, device: Device, network: Executor, loss: int, optimizer: int, hyper: Hyper
    ) -> None:
        self._device, self._network = device, network
        self._kinds = loss, optimizer
        self._rate = device.zeros(1, np.float64)
        self._rate_set = 0.0
        self._hyper = hyper._replace(rate=self._rate)
        # None: has been done once, and is recorded when it comes again
        self._recorded: OrderedDict[tuple[int, int], Callable[[], None] | None] = OrderedDict()

    def reserve(self, batch: int, *, sparse: bool) -> None:
        """Make room for batches of `batch` rows; may run out of memory."""
        if self._network.reserve(batch, sparse=sparse):
            self.forget()  # they go where the scratch was

    def forget(self) -> None:
        """Let go of what was recorded: the arrays of a slot are others from now on."""
        if self._recorded:
            self._device.synchronize()  # one of them may be under way
        self._recorded.clear()

    def train(
        self, slot: int, inputs: Inputs, labels: Labels, rows: Any, numbers: Any, totals: Any
    ) -> None:
        """One update from `rows`[B], which are called `numbers`[B], at the rate that was set.

        All arrays are the same whenever `slot` and B are; their contents may differ.
        """
        self.reserve(len(rows), sparse=len(inputs.indptr) > 0)
        key = len(rows), slot
        network, hyper = self._network, self._hyper  # not self, which will hold what is recorded
        loss, optimizer = self._kinds

        def step() -> None:
            network.train_batch(inputs, labels, rows, loss, optimizer, hyper, totals, numbers)

        if key not in self._recorded:
            step()
            self._remember(key, None)
        elif (repeat := self._recorded[key]) is not None:
            repeat()
            self._recorded.move_to_end(key)
        else:
            self._remember(key, self._device.record(step))

    def set_rate(self, rate: float) -> None:
        """The learning rate from the next step on."""
        if rate != self._rate_set:
            self._rate.fill(rate)
            self._rate_set = rate

    def evaluate(self, inputs: Inputs, labels: Labels, rows: Any, totals: Any) -> None:
        """Add loss and metrics of `rows`[B] to `totals`."""
        self.reserve(len(rows), sparse=len(inputs.indptr) > 0)
        self._network.evaluate_batch(inputs, labels, rows, self._kinds[0], totals)

    def _remember(self, key: tuple[int, int], step: Callable[[], None] | None) -> None:
        self._recorded[key] = step
        self._recorded.move_to_end(key)
        while len(self._recorded) > MAX_RECORDED:
            self._recorded.popitem(last=False)
