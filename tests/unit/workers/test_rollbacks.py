"""A model that stops being finite is put back by the coordinator; what workers keep of it goes."""

import queue

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.wire.messages import Done
from hogbatch.workers.cpu import CpuEngine
from hogbatch.workers.exchange import MAX_REFUSED
from tests.support.assignments import NEURONS, assignment, examples, wide
from tests.support.gpu_engine_driver import ROWS, SPARSE, WIDE, Rehearsal, lease
from tests.support.hash_table_builds import Rig, in_tables, output_weights, true_codes
from tests.unit.workers.conftest import WITHIN_S
from tests.unit.workers.test_hashed import wait_for

pytestmark = pytest.mark.usefixtures("nothing_measured")


def arrays(model):
    return model.params, model.first, model.second


def rolled_back(one, times=1):
    """The lease `one` after so many roll-backs."""
    return msgspec.structs.replace(one, rollbacks=times)


class CpuRig:
    """A CPU engine of some threads with this test as its session."""

    def __init__(self, given, threads):
        self.posts = queue.SimpleQueue()
        self.engine = CpuEngine(threads)
        self.engine.prepare(given, self.posts.put)

    def do(self, one):
        self.engine.submit(one)
        done = self.posts.get(timeout=WITHIN_S)
        assert isinstance(done, Done), done
        return done


# CPU workers -------------------------------------------------------------------------------------


def with_l2(sparse, **fields):
    """An assignment whose parameters all change in each update."""
    return assignment(examples(ROWS, sparse=sparse), optimizer="momentum", l2=0.01, **fields)


@pytest.mark.parametrize(
    "given",
    [with_l2(False), with_l2(True), with_l2(False, cpu_teams=2), wide(background=True)],
    ids=["dense", "sparse", "teams", "hashed"],
)
def test_no_thread_restores_a_poisoned_model(given):
    rows = given.train.rows
    rig, one = CpuRig(given, threads=4), lease(stop=rows, batch=4)
    assert rig.do(one).skipped == 0
    good = [array.copy() for array in arrays(given.model)]
    given.model.params[:] = np.nan
    poisoned = rig.do(one)
    assert poisoned.skipped == rows and 1 <= poisoned.skipped_row <= rows
    for array, copy in zip(arrays(given.model), good, strict=True):
        array[:] = copy
    for epoch in range(2):
        done = rig.do(rolled_back(lease(stop=rows, batch=4, epoch=epoch)))
        assert (done.skipped, done.skipped_row) == (0, 0)
        assert all(np.isfinite(array).all() for array in arrays(given.model))


def test_hashed_outputs_are_hashed_again_once(monkeypatch):
    rig = Rig(monkeypatch, wide(most=3, random=1))
    rig.train(3)
    output_weights(rig.given)[:] *= -1
    for _ in range(3):  # as three threads do with one lease
        rig.layer.reset(1)
    ((functions, ids),) = rig.builds
    assert len(ids) == NEURONS
    with rig.layer._finder() as finder:
        assert_array_equal(in_tables(finder), true_codes(rig.given, functions))
    rig.layer.reset(2)
    assert [len(ids) for _, ids in rig.builds] == [NEURONS, NEURONS]
    rig.train(4)
    assert len(rig.builds[-1][1]) < NEURONS  # all neurons are hashed only once


def test_hashed_outputs_are_hashed_again_in_the_background(monkeypatch):
    rig = Rig(monkeypatch, wide(background=True, rehash=1000))
    with rig.layer._finder() as old:
        rig.given.model.steps[0] = 0  # as the snapshot has it
        rig.layer.reset(1)
        wait_for(rig, lambda finder: finder is not old)
    assert [len(ids) for _, ids in rig.builds] == [NEURONS]


# GPU workers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "optimizer"), [({}, "adagrad"), (SPARSE, "adam"), (WIDE, "adagrad")]
)
def test_a_replica_is_pulled_again_with_its_slots(data, optimizer):
    settings = {"data": data, "optimizer": optimizer}
    used, fresh = (given_for(**settings) for _ in range(2))
    rig = Rehearsal(used)
    rig.do(lease(0, 320, number=1), lease(320, ROWS, number=2))
    for there, here in zip(arrays(used.model), arrays(fresh.model), strict=True):
        there[:] = here
    used.model.steps[0] = used.model.merges[0] = 0
    replica = rig.engine._replica
    for array in (replica.params, *replica.slots):
        array.fill(np.nan)
    leases = lease(0, 320, number=3), lease(320, ROWS, number=4)
    for done in rig.do(*map(rolled_back, leases)):
        assert (done.skipped, done.refused) == (0, 0)
    Rehearsal(fresh).do(*leases)
    np.testing.assert_allclose(used.model.params, fresh.model.params, rtol=1e-5, atol=1e-6)


def given_for(data, **settings):
    return assignment(examples(ROWS, **data), **settings)


@pytest.mark.parametrize("data", [{}, WIDE], ids=["dense", "wide"])
def test_a_poisoned_model_is_not_blamed_on_the_device(data):
    given = given_for(data, optimizer="adagrad")
    good = [array.copy() for array in arrays(given.model)]
    rig = Rehearsal(given)
    given.model.params[:] = np.nan
    for number in range(MAX_REFUSED + 2):
        (done,) = rig.do(lease(0, 320, number=number))
        assert isinstance(done, Done) and done.skipped == 320 and done.refused > 0
    for array, copy in zip(arrays(given.model), good, strict=True):
        array[:] = copy
    (done,) = rig.do(rolled_back(lease()))
    assert (done.skipped, done.refused, done.skipped_row) == (0, 0, 0)
    assert all(np.isfinite(array).all() for array in arrays(given.model))


@pytest.mark.parametrize(("data", "staged"), [({}, True), (SPARSE, False), (WIDE, True)])
def test_a_skipped_row_is_reported_by_its_number_in_the_set(data, staged, monkeypatch):
    if staged:
        monkeypatch.setattr("hogbatch.workers.feed.MAX_MEMORY_FRACTION", 0.0)
    given = given_for(data)
    bad = int(given.orders.row_order(1)[77])
    values = given.train.labels.values
    values.flags.writeable = True  # only a memory fault can cause this
    values[bad] = np.nan
    rig = Rehearsal(given)
    clean, found = rig.do(lease(0, 64, epoch=1, number=1), lease(64, 256, epoch=1, number=2))
    assert (clean.skipped, clean.skipped_row) == (0, 0)
    assert (found.skipped, found.skipped_row, found.refused) == (1, bad + 1, 0)
