"""A GPU worker without its session, on the host: takes leases and returns reports."""

import queue
from itertools import pairwise

from benchmarks.common.job import WITHIN_S
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.wire.messages import Lease
from hogbatch.workers.gpu import GpuEngine
from tests.support.limited_devices import Limited

ROWS = 600
SPARSE = {"sparse": True}
WIDE = {"sparse": True, "features": 5000, "stored": 0.0008}  # only touched rows are exchanged


class Rehearsal:
    """An engine with the test as its session; `leases` are queued before it is ready."""

    def __init__(self, given, leases=(), device=None, heard=lambda report: None):
        self.given, self.device = given, device or HostDevice()
        self.posts, self.precisions = queue.SimpleQueue(), []
        self.engine = GpuEngine("gpu:host", self.make_device)
        for one in leases:
            self.engine.submit(one)

        def post(report):  # on a thread of the engine, which waits for it
            heard(report)
            self.posts.put(report)

        self.profile = self.engine.prepare(given, post).profile

    def make_device(self, precision):
        self.precisions.append(precision)
        return self.device

    def hear(self, count):
        """The next reports."""
        return [self.posts.get(timeout=WITHIN_S) for _ in range(count)]

    def do(self, *leases):
        """The reports of `leases`, submitted together."""
        for one in leases:
            self.engine.submit(one)
        return self.hear(len(leases))

    def leave(self, spare):
        """Limit the device's free memory to `spare` bytes."""
        self.device.xp.limit -= self.device.free_bytes() - spare


def lease(start=0, stop=ROWS, batch=32, *, rate=0.1, epoch=0, number=1, task="train", fence=0):
    return Lease(number, task, epoch, start, stop, batch, rate, fence)


def epochs(count, batch=32, *, edges=(0, 250, 251, ROWS), **fields):
    """The leases of complete epochs, each split at `edges`."""
    return [
        lease(start, stop, batch, epoch=epoch, number=epoch * len(edges) + part, **fields)
        for epoch in range(count)
        for part, (start, stop) in enumerate(pairwise(edges))
    ]


def big():
    """A device with enough memory that counts its allocations."""
    return Limited(1 << 26)
