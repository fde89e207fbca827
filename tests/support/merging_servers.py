"""Several servers of one process, connected by memory planes, that merge on a thread each."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.decisions.areas import ALL
from hogbatch.cluster.exchange import ChangeExchange
from tests.support.memory_plane import MemoryPlane


class Servers:
    """Servers with the numbers 10, 11, ...; `changes`[N][P]."""

    def __init__(self, changes, timeout_s=WITHIN_S, reductions=ALL):
        count, size = np.shape(changes)
        self.buffers = {
            10 + place: ExchangeBuffers.create(size, reductions, servers=count)
            for place in range(count)
        }
        self.planes = {number: MemoryPlane(each) for number, each in self.buffers.items()}
        self.exchanges = {
            number: ChangeExchange(self.buffers[number], plane, number, timeout_s)
            for number, plane in self.planes.items()
        }
        self.abort = threading.Event()
        self.change(changes)

    def change(self, changes):
        """The next change of each server."""
        for buffers, change in zip(self.buffers.values(), changes, strict=True):
            buffers.change[:] = change

    def connect(self, numbers=None):
        """Connect the servers with these numbers; None: all."""
        planes = {number: self.planes[number] for number in numbers or self.planes}
        addresses = {number: plane.address for number, plane in planes.items()}
        for number, plane in planes.items():
            plane.connect({other: each for other, each in addresses.items() if other != number})

    def reduce(self, how, merge=1, attempt=0, numbers=None, weights=None):
        """Merge on all these servers at the same time; returns their sums [N][P] in their order.

        Raises the error of the first server that has one, after all have ended.
        """
        numbers = list(numbers or self.exchanges)
        weights = [1.0] * len(numbers) if weights is None else weights

        def merge_on(number, weight):
            exchange = self.exchanges[number]
            exchange.reduce(merge, attempt, numbers, weight, how, self.abort)

        with ThreadPoolExecutor(len(numbers)) as pool:
            merges = [
                pool.submit(merge_on, number, weight)
                for number, weight in zip(numbers, weights, strict=True)
            ]
        for each in merges:
            each.result()
        return [self.buffers[number].sum.copy() for number in numbers]

    def close(self):
        for each in (*self.planes.values(), *self.buffers.values()):
            each.close()
