"""Devices without some feature, with replaced operations, or with a simulated clock."""

from functools import partial

from hogbatch.kernels import reference
from hogbatch.kernels.gpu.device import HostDevice


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
        return getattr(reference, name)


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
        getattr(reference, name)(*arguments)
