"""The replica of a rehearsed GPU worker, on a device whose work takes simulated time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hogbatch.kernels.contract import TOTALS
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import ModelView, layer_table
from hogbatch.kernels.gpu.device import HostArray, HostDevice, Shape
from hogbatch.simulate.hardware.gpu_cost import GpuCost, MergeTimes
from hogbatch.simulate.rehearsal.cores import Noise
from hogbatch.simulate.worker import SimulatedWorker
from hogbatch.wire.messages import Lease
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.replica import Replica
from hogbatch.workers.transfers import Transfers

LINE = 64  # bytes of a cache line
NO_FENCE = 0  # of batches: a GPU worker checks its fence only before it merges


class SimulatedDevice(HostDevice):
    """The host as a device whose queued work ends at a simulated time, `free`.

    An event is the simulated time of its end. `work` has the functions that compute what is queued;
    they run when the device takes the change, because nobody reads the results earlier.
    `noise` varies the times of `cost` at random. With `shares_core`, the exchange and the training
    that follows take turns on one core.
    """

    def __init__(
        self, host: SimulatedWorker, cost: GpuCost, noise: Noise, *, shares_core: bool
    ) -> None:
        super().__init__()
        self.host, self.cost, self.noise = host, cost, noise
        self.free = 0.0
        self.work: list[Callable[[], object]] = []
        self.times = MergeTimes(0.0, 0.0, 0.0)  # of the change that was taken last
        self._shares_core = shares_core
        self._exchanging = 0.0  # seconds of an exchange that prolong the next interval

    def host_time(self) -> float:
        return self.host.now

    def record_event(self) -> float:
        return max(self.host.now, self.free)

    def busy(self, seconds: float) -> None:
        self.free = self.record_event() + seconds

    def pull(self, touched: int | None) -> None:
        """Queue a pull before an interval that touches so many rows."""
        self.busy(self.cost.merge(touched).pull * self.noise.factor())

    def train(self, rows: int, batch: int) -> None:
        """Queue batches, each of which varies at random."""
        sizes = _batch_sizes(rows, batch)
        seconds = sum(count * self.cost.train_seconds(size) for size, count in sizes)
        seconds *= self.noise.factor(sum(count for _, count in sizes))
        self.busy(seconds + self._exchanging)
        self._exchanging = 0.0

    def take(self, touched: int | None, *, last: bool) -> None:
        """Queue taking a change; `last`: no interval follows immediately."""
        queued, self.work = self.work, []

        def compute() -> None:
            for work in queued:
                work()

        self.host.later(self.record_event() - self.host.now, compute)
        times = self.cost.merge(touched)
        times = MergeTimes(*(seconds * self.noise.factor() for seconds in times))
        if self._shares_core and not last:
            self._exchanging = times.merge
            times = times._replace(merge=2 * times.merge)
        self.busy(times.blocking)
        self.times = times

    def evaluate(self, rows: int, batch: int) -> None:
        """Queue a pull of all parameters and an evaluation."""
        sizes = _batch_sizes(rows, batch)
        seconds = sum(count * self.cost.evaluate_seconds(size) for size, count in sizes)
        self.busy((self.cost.merge(None).pull + seconds) * self.noise.factor())

    def empty(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        """Return an array that begins at a cache line, as shared memory does."""
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.empty(nbytes + LINE, np.uint8)
        start = -memory.ctypes.data % LINE
        return memory[start : start + nbytes].view(dtype).reshape(shape)

    def zeros(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        array = self.empty(shape, dtype)
        array.fill(0)
        return array


class RehearsedReplica(Replica):
    """A replica on a SimulatedDevice."""

    device: SimulatedDevice

    def begin(self, rows: Any) -> None:
        super().begin(rows)
        self.device.pull(self.touched)

    def refresh(self) -> None:
        super().refresh()
        self.transfers.add(0, self.device.cost.merge(None).pull)

    def hand_over(self, rows: Any) -> float:
        self.device.work.append(partial(super().hand_over, rows))
        self.device.take(self.touched, last=rows is None)
        return self.device.record_event()

    def reset(self) -> None:
        self.device.work.clear()
        super().reset()


class RehearsedTrainer:
    """A replica that is trained by the loops of CPU workers, for the training thread."""

    def __init__(self, device: SimulatedDevice, assignment: Assignment) -> None:
        self.device, self._assignment = device, assignment
        replica = self.replica = RehearsedReplica.of(device, assignment)
        layers, below = assignment.network.layer_views(), assignment.network.placed_backbone()
        sparse = assignment.train.sparse
        self._loop = loop_for(layers, sparse=sparse, hashed=False, backbone=below)
        self._steps = np.zeros(1, np.int64)
        slots = replica.slots[0], replica.slots[1]
        table = layer_table(layers)
        self._view = ModelView(table, replica.params, *slots, self._steps, *slots)
        self._head = np.full(layers[0].fan_in, -1, np.int32)
        self._line = np.full(8, NO_FENCE, np.int64)

    def exchange_touched_rows(self) -> bool:
        first, inputs = self._assignment.network.layer_views()[0], self._assignment.train.inputs
        return self.replica.exchange_touched_rows(first, inputs)

    def reserve(self, batch: int) -> None:
        """Do nothing: the loops allocate what they need."""

    def release(self) -> None:
        """Do nothing: nothing is reserved."""

    def follow(self, epoch: int) -> None:
        self._order = self._assignment.orders.row_order(epoch)

    def rows(self, start: int, stop: int) -> NDArray[np.int64]:
        return self._order[start:stop]

    def train(self, start: int, stop: int, batch: int, rate: float) -> None:
        self.device.train(stop - start, batch)
        self.device.work.append(partial(self._train, self.rows(start, stop), batch, rate))

    def evaluate(self, lease: Lease) -> NDArray[np.float64]:
        chosen, totals = self._assignment.sets[lease.task], np.zeros(TOTALS)
        rows = np.arange(lease.start, lease.stop)
        arrays = self._view, chosen.inputs, chosen.labels, rows
        batches = self._assignment.batches(lease.batch_size, NO_FENCE, 1)
        self._loop.evaluate(*arrays, batches, self._line, totals, self._assignment.scores)
        self.device.evaluate(len(rows), lease.batch_size)
        return totals

    def input_transfers(self) -> Transfers:
        """Return none: the whole set is on the device."""
        return Transfers()

    def _train(self, rows: NDArray[np.int64], batch: int, rate: float) -> None:
        train, rest = self._assignment.train, (self._head, self._line, self.replica.totals)
        arrays = self._view, train.inputs, train.labels, rows
        batches = self._assignment.batches(batch, NO_FENCE, 1)
        self._steps[0] = self.replica.steps
        self._loop.train(*arrays, batches, self._assignment.hyper(rate), *rest)
        self.replica.steps = int(self._steps[0])


def _batch_sizes(rows: int, batch: int) -> list[tuple[int, int]]:
    """The sizes of the batches of `rows` rows, with the number of batches of each."""
    sizes = [(batch, rows // batch), (rows % batch, 1)]
    return [(size, count) for size, count in sizes if size and count]
