"""Several servers of one process, connected by planes in its memory; each merges on a thread."""

import itertools
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

import numpy as np

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.model_merges import ChangeExchange
from hogbatch.cluster.planes.base import PlaneError
from hogbatch.wire.messages import Reduce

PLANES = WeakValueDictionary()  # by address
counter = itertools.count()


class MemoryPlane:
    """One server of several in this process; see `base.Plane`."""

    name = "memory of one process"

    def __init__(self, buffers):
        self.buffers, self._others, self._lock = buffers, {}, threading.Lock()
        self._present = self._next = None  # addresses
        self._open = {}  # notes of the senders that may write, by address

    @property
    def address(self):
        if self._next is None:
            self._next = b"%d" % next(counter)
            self._open[self._next], PLANES[self._next] = deque(), self
        return self._next

    def connect(self, others):
        own = self.address
        with self._lock:
            self._open = {own: self._open[own]}
        self._present, self._next, self._others = own, None, dict(others)

    def start(self, to, source, target, note):
        if to not in self._others:
            raise PlaneError(to, "is not connected")
        address = self._others[to]
        other = PLANES[address]
        with other._lock:
            if address not in other._open:
                raise PlaneError(to, "has disconnected")
            part = self.buffers.memory[slice(*source)]
            other.buffers.memory[target : target + len(part)] = part
            other._open[address].append((self._present, note))

    def finish(self):
        pass

    def notes(self):
        numbers = {address: number for number, address in self._others.items()}
        arrived = self._open.get(self._present, ())
        while arrived:
            sender, note = arrived.popleft()
            if sender in numbers:
                yield numbers[sender], note

    def close(self):
        self._open = {}


def reduction(numbers=(7,), weights=None, merge=1, attempt=0):
    """The message that asks servers for a sum;."""
    weights = tuple(weights) if weights is not None else (1.0,) * len(numbers)
    return Reduce(merge, attempt, tuple(numbers), weights)


class Servers:
    """Connected servers with the numbers 10, 11, ...; `changes`[N][P]."""

    def __init__(self, changes, timeout_s=WITHIN_S):
        count, size = np.shape(changes)
        self.buffers = {10 + place: ExchangeBuffers.create(size) for place in range(count)}
        self.planes = {number: MemoryPlane(each) for number, each in self.buffers.items()}
        self.exchanges = {
            number: ChangeExchange(self.buffers[number], plane, number)
            for number, plane in self.planes.items()
        }
        for exchange in self.exchanges.values():
            exchange.timeout_s = timeout_s
        self.abort = threading.Event()
        self.change(changes)
        self.connect(self.planes)

    def change(self, changes):
        """The next change of each server."""
        for buffers, change in zip(self.buffers.values(), changes, strict=True):
            buffers.change[:] = change

    def connect(self, numbers):
        """Connect the servers with these numbers."""
        addresses = {number: self.planes[number].address for number in numbers}
        for number in numbers:
            others = {other: each for other, each in addresses.items() if other != number}
            self.planes[number].connect(others)

    def start(self, number, numbers, **when):
        """Begin a merge on one server."""
        message = reduction(numbers, **when)
        self.exchanges[number].reduce(message, self.abort)

    def reduce(self, numbers=None, **when):
        """Merge on all these servers at the same time; returns their sums [N][P] in their order.

        Raises the error of the first server that has one, after all have ended.
        """
        numbers = list(numbers or self.exchanges)
        with ThreadPoolExecutor(len(numbers)) as pool:
            merges = [pool.submit(self.start, number, numbers, **when) for number in numbers]
        for each in merges:
            each.result()
        return [self.buffers[number].sum.copy() for number in numbers]

    def close(self):
        for each in (*self.planes.values(), *self.buffers.values()):
            each.close()
