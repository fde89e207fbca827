"""What a GPU worker's training thread does with the device: steps, evaluation, measurement."""

import time
from typing import Any

import numpy as np

from hogbatch.kernels.contract import (
    IGNORES_ZEROS,
    LOSSES,
    OPTIMIZERS,
    SUMMED_SLOTS,
    TOTALS,
    Hyper,
)
from hogbatch.kernels.executor import Executor, corrected
from hogbatch.kernels.gpu.device import Device
from hogbatch.kernels.gpu.graph import Steps
from hogbatch.wire.messages import Work
from workers.feed import CachedSet, Feed, feed_for
from workers.replica import Replica
from workers.session import Assignment

COPIES = 5  # of the parameters, that a replica makes besides: gradients, and what travels
MEASUREMENTS = 5  # of a batch size, the fastest counts: noise only ever slows down
TOGETHER = 3  # batches of a measurement, because a device works ahead
SPARSEST_DENSE = 0.01  # share of stored cells under which writing rows out is not even tried
UNSHUFFLED = -1  # the epoch of measurements, in the order of the file


class Trainer:
    """A replica, the sets, and the network's steps, for one thread."""

    def __init__(self, device: Device, assignment: Assignment) -> None:
        welcome = assignment.welcome
        self.device = device
        self._assignment = assignment
        self._loss = LOSSES[assignment.network.loss]
        self._optimizer = OPTIMIZERS[welcome.optimizer.name]
        first = assignment.network.plan()[0]
        sums = assignment.train.sparse and self._optimizer in SUMMED_SLOTS
        self.replica = Replica(
            device, assignment.model, welcome.merge, first.fan_in * first.fan_out if sums else 0
        )
        copies = COPIES * self.replica.params.nbytes  # that are not there yet
        self._train_set = feed_for(device, assignment.train, copies)
        self._test_set: Feed | None = None
        if assignment.test is not None:
            self._test_set = feed_for(device, assignment.test, copies)
        self._evaluated = device.zeros(TOTALS, np.float64)  # now: later there may be no room
        self.compute(densify=False)

    @property
    def may_densify(self) -> bool:
        """Whether sparse rows may be written out: it must not change what is computed.

        By touched rows, momentum, Adam and weight decay leave the others alone.
        """
        train, settings = self._assignment.train, self._assignment.welcome.optimizer
        if not train.sparse or settings.l2 > 0 or self._optimizer not in IGNORES_ZEROS:
            return False
        return len(train.inputs.indices) >= SPARSEST_DENSE * train.rows * train.features

    def compute(self, *, densify: bool) -> None:
        """Train on sparse rows where they lie, or written out as dense ones."""
        device, replica, settings = self.device, self.replica, self._assignment.welcome.optimizer
        plan = self._assignment.network.plan()
        first, second = replica.slots
        network = Executor(device.kernels, device.xp, plan, replica.params, first, second, densify)
        self._hyper = Hyper(0.0, settings.l2, settings.momentum, settings.beta2, settings.epsilon)
        self._steps = Steps(device, network, self._loss, self._optimizer, self._hyper)

    def travel_by_rows(self) -> bool:
        """Exchange only the touched rows of the first layer; False where that cannot be."""
        if not isinstance(self._train_set, CachedSet):
            return False
        first = self._assignment.network.plan()[0]
        return self.replica.travel_by_rows(first, self._train_set.inputs)

    def reserve(self, batch: int) -> None:
        """Make room for batches of `batch` rows; may run out of memory."""
        if self._train_set.reserve(batch):
            self._steps.forget()
        self._steps.reserve(batch, sparse=self._assignment.train.sparse)

    def release(self) -> None:
        """Give back the room for batches where memory has run out: smaller ones need less."""
        self._steps.forget()
        for feed in (self._train_set, self._test_set):
            if feed is not None:
                feed.release()
        self.device.free_unused()

    def follow(self, epoch: int) -> None:
        """Rows are positions in the order of `epoch` from now on."""
        if epoch == UNSHUFFLED:
            self._train_set.follow(epoch, np.arange(self._assignment.train.rows))
        else:
            self._train_set.follow(epoch, self._assignment.orders.of(epoch))

    def rows(self, start: int, stop: int) -> Any:
        """Row numbers of [start, stop) on the device; None for a set that is staged."""
        return self._train_set.rows(start, stop)

    def train(self, start: int, stop: int, batch: int, rate: float) -> None:
        """Train the replica on rows [start, stop) of the order, in batches."""
        for begin in range(start, stop, batch):
            part = self._train_set.batch(begin, min(begin + batch, stop))
            self.replica.steps += 1
            hyper = self._hyper._replace(rate=rate)
            self._steps.set_rate(corrected(self._optimizer, hyper, self.replica.steps).rate)
            self._steps.train(*part, self.replica.totals)

    def evaluate(self, work: Work) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The sums of [work.start, work.stop) of the test set, in smaller batches if need be."""
        test, feed = self._assignment.test, self._test_set
        assert test is not None and feed is not None, "evaluation needs a test set"
        feed.follow(0, np.arange(test.rows))
        summed, totals = self._evaluated, np.zeros(TOTALS)
        summed.fill(0)
        start, size = work.start, work.batch_size
        while start < work.stop:
            stop = min(start + size, work.stop)
            try:
                self._steps.evaluate(*feed.batch(start, stop)[1:4], summed)
                start = stop
            except self.device.out_of_memory:
                if size == 1:
                    raise
                size //= 2
                self.release()
        self.device.to_host(summed, totals)
        return totals

    def seconds(self, batch: int) -> float:
        """Of one batch; the numbers it leaves behind are worthless. May run out of memory."""
        self.reserve(batch)
        self.follow(UNSHUFFLED)
        best = float("inf")
        for _ in range(MEASUREMENTS):
            began = time.perf_counter()
            for _ in range(TOGETHER):
                self.train(0, batch, batch, 0.0)
            self.device.synchronize()
            best = min(best, (time.perf_counter() - began) / TOGETHER)
        return best
