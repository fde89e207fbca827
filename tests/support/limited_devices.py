"""Devices with little memory, without a feature, with replaced operations or a simulated clock."""

import weakref
from functools import partial

import numpy as np

from hogbatch.kernels.gpu.device import HostDevice


class OutOfHostMemory(MemoryError):
    """An allocation exceeds the memory of a `Limited` device."""


class _LimitedNumpy:
    """NumPy with a limit for the total size of live arrays.

    The limit applies to `empty`, `zeros` and `full`, with which the network and the worker
    allocate; the rest of NumPy is unchanged.
    """

    def __init__(self, limit):
        self.limit = limit
        self.used = 0

    def __getattr__(self, name):
        return getattr(np, name)

    def empty(self, shape, dtype=np.float64):
        count = int(np.prod(shape, dtype=np.int64))
        self._allocate(count * np.dtype(dtype).itemsize)
        array = np.empty(shape, dtype)
        weakref.finalize(array, self._release, array.nbytes)
        return array

    def zeros(self, shape, dtype=np.float64):
        return self.full(shape, 0, dtype)

    def full(self, shape, value, dtype=np.float64):
        array = self.empty(shape, dtype)
        array.fill(value)
        return array

    def _allocate(self, size):
        if self.used + size > self.limit:
            raise OutOfHostMemory(
                f"gpu:host has {self.limit - self.used} of {self.limit} bytes left; "
                f"{size} were requested"
            )
        self.used += size

    def _release(self, size):
        self.used -= size


class Limited(HostDevice):
    """The host, on which all arrays together may have so many bytes."""

    def __init__(self, memory_bytes):
        self.xp = _LimitedNumpy(memory_bytes)

    def free_bytes(self):
        return self.xp.limit - self.xp.used


class Unmapped(HostDevice):
    """A device that cannot map host memory."""

    def mapped(self, array):
        return None


class Unpinned(HostDevice):
    """A device for which host memory cannot be pinned."""

    def pin(self, array):
        return False


class Kernels:
    """The operations of the reference, except those given."""

    def __init__(self, **given):
        self.__dict__.update(given)

    def __getattr__(self, name):
        return getattr(HostDevice.kernels, name)


class SimulatedTime:
    """In place of the module `time`: nothing but `sleep` takes more than a microsecond."""

    def __init__(self):
        self._now = 0.0

    def perf_counter(self):
        self._now += 1e-6
        return self._now

    def sleep(self, seconds):
        self._now += seconds


class Clocked(HostDevice):
    """A device whose events have simulated times: each operation takes as many `seconds` as given.

    The keys of `seconds` are names of operations; other operations take no time.
    """

    def __init__(self, **seconds):
        super().__init__()
        self.clock, self.seconds = 0.0, seconds
        self.kernels = Kernels(**{name: partial(self._run, name) for name in seconds})

    def record_event(self):
        return self.clock

    def measure(self, work):
        start = self.record_event()
        work()
        return self.elapsed(start, self.record_event())

    def _run(self, name, *arguments):
        self.clock += self.seconds[name]
        getattr(HostDevice.kernels, name)(*arguments)
