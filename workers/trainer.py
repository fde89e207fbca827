"""Training, evaluation and measurement on the device, for the training thread of a GPU worker."""

import math
from functools import partial
from typing import Any

import numpy as np

from hogbatch.config.sets import SetName
from hogbatch.kernels.contract import IGNORES_ZEROS, TOTALS, RowScores
from hogbatch.kernels.executor import Executor, corrected
from hogbatch.kernels.gpu.device import Device, HostDevice, memory_shortage
from hogbatch.kernels.gpu.graph import IN_A_ROW, CapturedSteps
from hogbatch.wire.messages import Lease
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.feed import CachedSet, Feed, feed_for
from hogbatch.workers.mapping import MappedSegment
from hogbatch.workers.replica import Replica
from hogbatch.workers.transfers import Transfers

COPIES = 6  # of the parameters that a replica allocates later: gradients, and those for merges
MEASUREMENTS = 3  # per batch size; the fastest counts, because noise only slows down
MAX_TOGETHER = 300  # batches that are queued together for one measurement
SPARSEST_DENSE = 0.01  # minimum fraction of stored values for trying to make rows dense
UNSHUFFLED = -1  # the epoch of measurements, with rows in the order of the file


class Trainer:
    """A replica, the sets of rows, and the steps of the network, for one thread."""

    def __init__(self, device: Device, assignment: Assignment) -> None:
        self.device = device
        self._assignment = assignment
        _, self._optimizer = assignment.kinds
        self.replica = Replica.of(device, assignment)
        copies = COPIES * self.replica.params.nbytes  # not allocated yet
        data = None  # rows on disk cannot be pinned
        if assignment.data is not None and not assignment.on_disk:
            data = MappedSegment(device, assignment.data)
        cached = not (assignment.on_disk and isinstance(device, HostDevice))
        feed = partial(feed_for, reserved_bytes=copies, data=data, cached=cached)
        self._train_set = feed(device, assignment.train)
        self._held_out: dict[SetName, Feed] = {
            name: feed(device, rows) for name, rows in assignment.held_out.items()
        }
        self._evaluated = device.zeros(TOTALS, np.float64)  # later there may be no memory left
        self._warm = False
        self.compute(densify=False)

    @property
    def may_densify(self) -> bool:
        """Whether sparse rows may be made dense, which must not change the results.

        Momentum, Adam and weight decay would change weights of features that a batch does not have;
        on sparse rows, they update the touched rows of the weights only.
        """
        train, settings = self._assignment.train, self._assignment.welcome.optimizer
        if not train.sparse or settings.l2 > 0 or self._optimizer not in IGNORES_ZEROS:
            return False
        return len(train.inputs.indices) >= SPARSEST_DENSE * train.rows * train.features

    def compute(self, *, densify: bool) -> None:
        """Set whether sparse rows are trained on as they are, or made dense."""
        device, replica = self.device, self.replica
        first, second = replica.slots
        network = Executor(
            device.kernels,
            device.xp,
            self._assignment.network.layer_views(),
            replica.params,
            first,
            second,
            densify,
            backbone=self._assignment.network.placed_backbone(),
        )
        kinds, hyper = self._assignment.kinds, self._assignment.hyper(0.0)
        random = self._assignment.dropout, self._assignment.welcome.augmentation
        self._steps = CapturedSteps(device, network, *kinds, hyper, *random)

    def exchange_touched_rows(self) -> bool:
        """Exchange only the touched rows of the first layer; return False if that is impossible."""
        if not isinstance(self._train_set, CachedSet):
            return False
        first = self._assignment.network.layer_views()[0]
        return self.replica.exchange_touched_rows(first, self._train_set.inputs)

    def reserve(self, batch: int) -> None:
        """Allocate memory for batches of `batch` rows; may run out of memory."""
        if self._train_set.reserve(batch):
            self._steps.clear()
        self._steps.reserve(batch, sparse=self._assignment.train.sparse)

    def release(self) -> None:
        """Free the memory for batches after memory has run out, to allocate for smaller ones."""
        self._steps.clear()
        for feed in (self._train_set, *self._held_out.values()):
            feed.release()
        self.device.free_unused()

    def follow(self, epoch: int) -> None:
        """Interpret row positions in the order of `epoch` from now on."""
        if epoch == UNSHUFFLED:
            self._train_set.set_order(epoch, np.arange(self._assignment.train.rows))
        else:
            self._train_set.set_order(epoch, self._assignment.orders.row_order(epoch))

    def rows(self, start: int, stop: int) -> Any:
        """Return the row numbers of [start, stop) on the device; None for a staged set."""
        return self._train_set.rows(start, stop)

    def train(self, start: int, stop: int, batch: int, rate: float) -> None:
        """Train the replica on rows [start, stop) of the order, in batches."""
        for begin in range(start, stop, batch):
            part = self._train_set.batch(begin, min(begin + batch, stop))
            self.replica.steps += 1
            hyper = corrected(self._optimizer, self._assignment.hyper(rate), self.replica.steps)
            self._steps.set_rate(hyper.rate)
            self._steps.set_update(self.replica.steps)
            self._steps.train(*part, self.replica.totals)

    def evaluate(self, lease: Lease) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the sums over rows [lease.start, lease.stop) of a set that is evaluated.

        The batch is halved whenever the device runs out of memory.
        """
        feed = self._held_out[lease.task]
        feed.set_order(UNSHUFFLED, np.arange(self._assignment.sets[lease.task].rows))
        totals = np.zeros(TOTALS)
        self._evaluated.fill(0)
        start, size = lease.start, lease.batch_size
        while start < lease.stop:
            stop = min(start + size, lease.stop)
            evaluate = partial(self._evaluate, feed, start, stop)
            if size == 1:  # it cannot be halved
                evaluate()
            elif memory_shortage(self.device, evaluate) is not None:
                size //= 2
                self.release()
                continue
            start = stop
        self.device.to_host(self._evaluated, totals)
        return totals

    def _evaluate(self, feed: Feed, start: int, stop: int) -> None:
        if feed.reserve(stop - start):  # training steps were captured with the old buffers
            self._steps.clear()
        xp, shared = self.device.xp, [array[start:stop] for array in self._assignment.scores]
        stored = RowScores(*(xp.empty(array.shape, array.dtype) for array in shared))
        self._steps.evaluate(*feed.batch(start, stop)[1:4], self._evaluated, stored)
        for array, out in zip(stored, shared, strict=True):
            if array.size:
                self.device.to_host(array, out)

    def seconds(self, batch: int) -> float:
        """Measure the seconds of one batch. Overwrites the replica; may run out of memory."""
        self.prepare(batch)
        count = self._together(batch)
        return min(self._repeat(batch, count) for _ in range(MEASUREMENTS)) / count

    def prepare(self, batch: int) -> None:
        """Capture the step of a batch, and once train until the device has raised its clocks.

        Overwrites the replica; may run out of memory.
        """
        self.reserve(batch)
        self.follow(UNSHUFFLED)
        self._repeat(batch, IN_A_ROW)  # the last one is captured
        seconds = 0.0
        while not self._warm and seconds < self.device.warm_up_seconds:
            seconds += self._repeat(batch, self._together(batch))
        self._warm = True

    def _together(self, batch: int) -> int:
        wanted = math.ceil(self.device.measured_seconds / max(self._repeat(batch, 1), 1e-9))
        return min(max(1, wanted), MAX_TOGETHER)

    def _repeat(self, batch: int, count: int) -> float:
        """Train `count` times on the first batch; return the seconds of the device.

        The host does not wait between the batches, so that other work on it makes no difference.
        """

        def repeat() -> None:
            for _ in range(count):
                self.train(0, batch, batch, 0.0)

        return self.device.measure(repeat)

    def input_transfers(self) -> Transfers:
        """Return the transfers of training rows since the last call."""
        return self._train_set.transfers.take()
