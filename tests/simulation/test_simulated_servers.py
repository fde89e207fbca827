"""Steps of simulated servers in merges."""

from random import Random
from types import SimpleNamespace

import msgspec
import pytest

from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.speed import Speed
from hogbatch.wire.messages import Collect, Collected, Lease, Reduce, Reduced
from tests.simulation.link import ServerLink
from tests.simulation.server_engine import (
    UNREACHABLE_S,
    Exchange,
    ServerEngine,
    TrainedRows,
)
from tests.support.simulated_host import SimulatedHost
from tests.support.wire_messages import WELCOME

LINK, SIZE = ServerLink(1e-3, 1e9), 1_000_000
ONE, TWO = TrainedRows(0, 0, 10), TrainedRows(0, 10, 20)


class Cluster:
    """Two or more servers, the first of which has the rows ONE in its change, and so on."""

    def __init__(self, count=2):
        self.queue = EventQueue()
        self.exchange = Exchange(SIZE, LINK, self.queue)
        process = SimpleNamespace(fence=[7])
        self.hosts = [SimulatedHost(process, self.queue) for _ in range(count)]
        self.engines = []
        for number, host in enumerate(self.hosts):
            engine = ServerEngine(Speed("server", 100.0), Random(0), exchange=self.exchange)
            engine.prepare(msgspec.structs.replace(WELCOME, worker=number), host)
            engine.change = [(ONE, TWO)[number % 2]]
            self.engines.append(engine)

    def serve(self, message, *numbers):
        for number in numbers or range(len(self.engines)):
            self.engines[number].serve(message)

    def run(self, until):
        """Run until the second `until`, at which nothing happens."""
        ended = []
        self.queue.at(until, lambda: ended.append(True))
        while not ended:
            self.queue.step()

    def said(self, number):
        return [message for _, message in self.hosts[number].posted]


def reduce(attempt=1, numbers=(0, 1), *, collect=True):
    weights = (1.0,) * len(numbers)
    return Reduce(1, attempt, numbers, weights, collect)


@pytest.mark.parametrize("passes", [0.5, 1.01], ids=["while copying", "during the sum"])
def test_a_server_that_dies_is_named_after_the_timeout(passes):
    cluster = Cluster(3)
    cluster.serve(reduce(numbers=(0, 1, 2)))
    cluster.run(passes * cluster.exchange.pass_seconds)
    cluster.hosts[1].exit("killed")
    cluster.run(UNREACHABLE_S - 0.1)
    assert cluster.said(0) == cluster.said(2) == []
    cluster.run(UNREACHABLE_S + 0.1)
    assert cluster.said(0) == cluster.said(2) == [Reduced(1, 1, 1)]


def test_another_message_ends_an_attempt():
    cluster = Cluster()
    cluster.serve(reduce(), 0)
    cluster.run(0.1)
    cluster.serve(Collect(1), 0)
    cluster.serve(reduce(), 1)
    cluster.run(1.0)
    assert [type(each) for each in cluster.said(0)] == [Collected]
    assert cluster.said(1) == [], "the other one waits"
    cluster.serve(reduce(2, collect=False))
    cluster.run(2.0)
    assert cluster.said(0)[-1] == cluster.said(1)[-1] == Reduced(1, 2)


def test_a_lease_belongs_to_the_change_when_it_is_done():
    cluster = Cluster()
    engine = cluster.engines[0]
    engine.submit(Lease(3, "train", 1, 50, 60, 10, 0.1, 7))
    engine.submit(Lease(4, "validation", 1, 0, 9, 10, 0.1, 7))
    cluster.serve(Collect(1), 0)
    assert engine.change == [ONE]
    cluster.run(5.0)
    assert engine.change == [ONE, TrainedRows(1, 50, 60)]
    cluster.serve(Collect(1), 0)
    cluster.run(6.0)
    collected = cluster.said(0)[-1]
    assert (collected.leases, collected.updates, collected.batch_size) == (1, 2, 10)
