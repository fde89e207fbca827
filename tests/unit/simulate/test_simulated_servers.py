"""Checks of the models of simulated servers, and their steps in merges."""

from random import Random
from types import SimpleNamespace

import msgspec
import pytest

from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.simulate.audit import InvariantViolation
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.server_engine import (
    UNREACHABLE_S,
    Exchange,
    MergedModel,
    ServerEngine,
    TrainedRows,
)
from hogbatch.simulate.simulated_servers import check_models, check_rows
from hogbatch.simulate.speed import Speed
from hogbatch.wire.messages import Collect, Collected, Lease, Reduce, Reduced
from tests.support.simulated_host import SimulatedHost
from tests.support.wire_messages import WELCOME

LINK, SIZE = ServerLink(1e-3, 1e9), 1_000_000
ONE, TWO = TrainedRows(0, 0, 10), TrainedRows(0, 10, 20)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(0, 0, 10), (0, 5, 10)], "row 5 of epoch 0 was merged twice"),
        ([(0, 0, 10), (0, 0, 10)], "merged twice"),
        ([(0, 0, 9), (1, 0, 10)], "9 rows of epoch 0"),
        ([(0, 0, 10), (2, 0, 10)], "0 rows of epoch 1"),
        ([(0, 0, 10), (1, 0, 5)], "15 rows were merged, 20 trained on"),
        ([], "0 rows were merged, 20 trained on"),
    ],
)
def test_rows_that_are_missing_or_merged_twice_are_found(rows, found):
    with pytest.raises(InvariantViolation, match=found):
        check_rows([TrainedRows(*each) for each in rows], 10, 20)
    check_rows([TrainedRows(*each) for each in [(0, 0, 4), (0, 4, 10), (1, 0, 10)]], 10, 20)


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


def test_servers_that_end_with_different_models_are_found():
    first, second = engines = Cluster().engines
    state = SimpleNamespace(plan=SimpleNamespace(train_rows=20), progress=SimpleNamespace(rows=20))
    processes = {number: SimpleNamespace(engine=each) for number, each in enumerate(engines)}
    world = SimpleNamespace(processes=processes, state=state)
    first.change, first.merged = [], MergedModel(MergedModel(), (ONE, TWO))
    second.merged = first.merged
    with pytest.raises(InvariantViolation, match="1 servers end with rows that are not merged"):
        check_models(world)
    second.change = []
    check_models(world)
    second.merged = MergedModel(MergedModel(), (ONE, TWO))
    with pytest.raises(InvariantViolation, match="2 servers end with 2 models"):
        check_models(world)
    processes.clear()
    with pytest.raises(InvariantViolation, match="no server is left"):
        check_models(world)


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
