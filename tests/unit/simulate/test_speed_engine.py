"""A worker whose leases only take time."""

from dataclasses import dataclass, field
from random import Random

import pytest

from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.speed import Speed
from hogbatch.simulate.speed_engine import SpeedEngine
from hogbatch.wire.messages import Lease

FENCE = 7


@dataclass
class Host:
    """A process that keeps what is posted."""

    queue: EventQueue = field(default_factory=EventQueue)
    posted: list = field(default_factory=list)
    causes: list = field(default_factory=list)
    fence: int = FENCE

    def later(self, seconds, action):
        self.queue.after(seconds, action)

    def post(self, message):
        self.posted.append(message.lease)

    def exit(self, cause):
        self.causes.append(cause)


def work(lease):
    return Lease(lease, "train", 0, 10 * lease, 10 * lease + 10, 5, 0.1, FENCE, 0)


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def engine(host):
    made = SpeedEngine(Speed("cpu", 100.0, 0.0, 0.1, 0.0), Random(0))
    made.prepare(None, host)
    return made


def run(host):
    while host.queue.step():
        pass


def test_leases_are_done_one_after_the_other(engine, host):
    engine.submit(work(0))
    engine.submit(work(1))
    run(host)
    assert host.posted == [0, 1] and host.queue.now == pytest.approx(0.2)


def test_a_hung_worker_finishes_only_the_lease_in_progress(engine, host):
    engine.submit(work(0))
    engine.submit(work(1))
    engine.hung = True
    run(host)
    engine.submit(work(2))
    run(host)
    assert host.posted == [0] and host.causes == []


def test_a_deadly_row_kills_a_hung_worker(engine, host):
    engine.deadly_row = lambda given: given.start
    engine.hung = True
    engine.submit(work(0))
    run(host)
    assert host.causes == ["killed by SIGSEGV"]
