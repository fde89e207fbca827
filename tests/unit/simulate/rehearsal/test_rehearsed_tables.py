"""Builds of hash tables at simulated times, their weights, and their use by threads."""

import numpy as np
from numpy.testing import assert_array_equal

from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.rehearsal.concurrent_model import StagedBatch
from hogbatch.simulate.rehearsal.cpu import RehearsedTables
from tests.support.assignments import NEURONS, wide
from tests.support.hash_table_builds import in_tables, true_codes
from tests.unit.simulate.rehearsal.conftest import BATCH, batch_rows, concurrent, settings

EACH_S = 0.25  # seconds per hashed output


class Rig:
    """Tables of one worker with some threads, at simulated times."""

    def __init__(self, threads=1):
        self.given = wide(sparse=True, optimizer="sgd", background=True)
        self.queue = EventQueue()
        self.rehearsed = RehearsedTables(self.given, self.queue.after, lambda n: EACH_S * n)
        self.model = concurrent(self.given)
        self.tables = self.rehearsed.tables
        self.threads = [self.model.thread(self.given, n, self.tables) for n in range(threads)]
        self.started = self.rehearsed.build_now()

    def train(self, batches, thread=0):
        """Train one range of a lease, in no time."""
        own = self.threads[thread]
        own.pinned = self.tables.enter()
        for number in range(batches):
            self.tables.begin(1)
            batch = StagedBatch(self.model, own, batch_rows(number), *settings(self.given))
            batch.run(batch.stages)
            self.rehearsed.end(1)
        self.rehearsed.leave(own)

    def codes(self):
        """The buckets in the current tables, and those of the current weights."""
        finder = self.tables.finder(self.tables.current)
        return in_tables(finder), true_codes(self.given, finder.functions)


def test_the_first_build_hashes_all_outputs():
    rig = Rig()
    assert rig.started == EACH_S * NEURONS
    assert_array_equal(*rig.codes())


def test_a_build_takes_time_and_reads_the_weights_at_its_start():
    rig = Rig()
    first = rig.tables.current
    rig.train(4)  # then a build is due
    _, then = rig.codes()
    assert rig.tables.current == first
    marked = rig.tables.thread(rig.threads[0].state, BATCH).changed
    rig.given.model.params[:] = -rig.given.model.params
    assert not marked.any()  # the build has read them
    assert rig.queue.step()
    assert 0 < rig.queue.now <= EACH_S * NEURONS
    assert rig.tables.current != first
    built, now = rig.codes()
    assert_array_equal(built, then)
    assert (now != then).any()
    assert not rig.queue.step()


def test_a_build_waits_until_no_thread_uses_the_tables_that_it_fills():
    rig = Rig(threads=2)
    slow = rig.threads[1]
    slow.pinned = rig.tables.enter()
    used = slow.pinned
    rig.train(4)
    assert rig.queue.step()  # the other set has been built and is used
    assert rig.tables.current != used == slow.pinned
    rig.train(4)  # due again, but `slow` still uses the set to be filled
    assert not rig.queue.step()
    rig.rehearsed.leave(slow)
    assert slow.pinned is None
    assert rig.queue.step()
    assert rig.tables.current == used


def test_after_a_roll_back_all_outputs_are_hashed_once():
    rig = Rig()
    rig.given.model.params[:] = np.roll(rig.given.model.params, 64)
    for _ in range(3):
        rig.rehearsed.reset(1)
    assert rig.queue.step()
    assert rig.queue.now == EACH_S * NEURONS
    assert_array_equal(*rig.codes())
    assert not rig.queue.step()
