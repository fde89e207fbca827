"""Measures batches and merges on a GPU, or on NumPy in place of one."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hogbatch.config.optimizers import OPTIMIZERS as SPECS
from hogbatch.data.batch import Inputs, Labels
from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, TOTALS, Hyper
from hogbatch.kernels.executor import Executor
from hogbatch.kernels.gpu.device import Device, HostDevice
from hogbatch.kernels.gpu.graph import CapturedSteps
from hogbatch.simulate.profile.networks import ProbeNetwork

REPETITIONS = 3  # the fastest counts, because noise only slows down
MAX_TOGETHER = 300  # batches that are queued together for one measurement
LARGE, SMALL = 1 << 22, 1 << 8  # floats; of transfers


class TransferSpeeds(NamedTuple):
    """Measured speeds of transfers and of merging, in bytes per second."""

    exchange_speed: float
    link_speed: float
    link_seconds: float
    mapped_speed: float
    host_add_speed: float


class ComputingHost(HostDevice):
    """`gpu:host` with a clock that stops while other processes have the core."""

    def record_event(self) -> float:
        return time.thread_time()


class Batches:
    """A probe network on a device, to measure batches of different sizes."""

    def __init__(self, device: Device, probe: ProbeNetwork, *, densify: bool) -> None:
        examples, spec = probe.examples, SPECS[probe.sizes.optimizer]
        self._device = device
        self._inputs = Inputs(*[device.to_device(each) for each in examples.inputs])
        self._labels = Labels(*[device.to_device(each) for each in examples.labels])
        params, first, second = map(device.to_device, (probe.params, probe.first, probe.second))
        layers = probe.network.layer_views()
        network = Executor(device.kernels, device.xp, layers, params, first, second, densify)
        hyper = Hyper(0.0, 0.0, spec.momentum, spec.beta2, spec.epsilon)
        kinds = LOSSES[probe.network.loss], OPTIMIZERS[spec.name]
        self._steps = CapturedSteps(device, network, *kinds, hyper)
        self._totals = device.zeros(TOTALS, np.float64)
        order = np.random.default_rng(0).permutation(examples.rows)
        self._order = device.to_device(order.astype(np.int64))

    def seconds(self, batch: int) -> float:
        """Seconds of a batch of `batch` rows, timed by events of the device."""
        rows = self._order[:batch]

        def repeat(count: int) -> float:
            start = self._device.record_event()
            for _ in range(count):
                self._steps.train(0, self._inputs, self._labels, rows, rows, self._totals)
            end = self._device.record_event()
            self._device.synchronize_event(end)
            return self._device.elapsed(start, end)

        repeat(2)  # the second batch is captured
        seconds = max(repeat(1), 1e-9)
        count = min(max(1, round(max(0.01, self._device.measured_seconds) / seconds)), MAX_TOGETHER)
        return min(repeat(count) for _ in range(REPETITIONS)) / count


def warm_up(device: Device, batches: Batches) -> None:
    """Train until the device has raised its clocks."""
    seconds = 0.0
    while seconds < device.warm_up_seconds:
        seconds += MAX_TOGETHER * batches.seconds(16)


def measure_transfers(device: Device, merge: Callable[[Any, Any, float], None]) -> TransferSpeeds:
    """Measure the operations of a merge; `merge` adds a change on the host."""
    nbytes = 4 * LARGE
    params, base, change = (device.zeros(LARGE, np.float32) for _ in range(3))
    pulled, host, shared = device.zeros(LARGE, np.float32), *_pinned(device, LARGE)
    finite = device.zeros(1, np.float32)

    def exchange() -> None:
        device.kernels.rejoin(pulled, params, base)
        device.kernels.take(params, base, change, finite)

    def timed(work: Callable[[], None]) -> float:
        work()
        return min(_elapsed(device, work) for _ in range(REPETITIONS))

    small = _pinned(device, SMALL)[0]
    latency = timed(lambda: device.copy_into(pulled[:SMALL], small))
    down = timed(lambda: device.to_host(change, host))
    up = timed(lambda: device.copy_into(pulled, shared))
    on_host = timed(lambda: merge(shared, host, 0.5))
    link = 2 * nbytes / (down + up)
    mapped = device.mapped(shared)
    mapped_speed = link / 2
    if mapped is not None:
        add = timed(lambda: device.kernels.add(0.5, change, mapped))
        mapped_speed = 2 * nbytes / add
    return TransferSpeeds(
        9 * nbytes / timed(exchange), link, latency, mapped_speed, nbytes / on_host
    )


def _pinned(device: Device, size: int) -> list[Any]:
    arrays = [device.pinned(size, np.float32) for _ in range(2)]
    for array in arrays:
        array[:] = 0
    return arrays


def _elapsed(device: Device, work: Callable[[], None]) -> float:
    start = device.record_event()
    work()
    end = device.record_event()
    device.synchronize_event(end)
    return device.elapsed(start, end)
