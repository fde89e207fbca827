"""The hashed output layer of a CPU worker: when tables are built, and which threads read them."""

import queue
import threading

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.errors import HogbatchError
from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, ROWS, TOTALS, UPDATES
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.wire.messages import Done, Failed, Lease
from hogbatch.workers.compute import hash_tables
from hogbatch.workers.cpu import CpuEngine, profile
from tests.support.assignments import NEURONS, WIDE_ROWS, wide
from tests.support.hash_table_builds import HYPER, Rig, in_tables, output_weights, true_codes
from tests.unit.workers.conftest import WITHIN_S


def test_measuring_batches_changes_nothing_that_training_uses(monkeypatch):
    params = []
    for first_measured in (False, True):
        rig = Rig(monkeypatch, wide(most=5, random=3))
        before = rig.given.model.params.copy()
        loop = loop_for(rig.given.network.layer_views(), sparse=True, hashed=True)
        if first_measured:
            kinds = LOSSES["multilabel-softmax"], OPTIMIZERS["adam"]
            lease = BatchSettings(8, *kinds, int(rig.given.fence[0]), 1)
            measured = profile(rig.layer.measured_loop(loop, 8), rig.given, lease)
            assert [rows for rows, _ in measured] == [8, 4, 2, 1]
        assert_array_equal(rig.given.model.params, before)
        rig.train(12)
        params.append(rig.given.model.params)
    assert_array_equal(*params)


# --- in the foreground ------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3, NEURONS + 5])
def test_the_first_tables_contain_every_neuron_in_its_bucket(monkeypatch, threads):
    rig = Rig(monkeypatch, wide(), threads)
    with rig.layer._finder() as finder:
        assert_array_equal(in_tables(finder), true_codes(rig.given, finder.functions))


def test_tables_are_built_after_the_same_updates_whatever_the_leases(monkeypatch):
    rig = Rig(monkeypatch, wide(rehash=4, growth=1.5))
    steps, before = [], rig.given.model.steps
    rig.builds.before = lambda: steps.append(int(before[0]))
    for updates in (1, 2, 30):
        rig.train(updates)
    assert steps == [4, 10, 19, 32]


def test_in_the_foreground_the_model_does_not_depend_on_lease_lengths(monkeypatch):
    """The leases are of whole batches; their ends do not change when tables are built."""
    params = []
    for parts in ((12,), (12,), (5, 7)):
        rig = Rig(monkeypatch, wide(most=5, random=3))
        rows = np.random.default_rng(1).integers(0, WIDE_ROWS, 36)
        for part in np.split(rows, np.cumsum(parts)[:-1] * 3):
            totals = np.zeros(TOTALS)
            lease = BatchSettings(3, LOSSES["multilabel-softmax"], OPTIMIZERS["adam"], 0, 1)
            rig.layer.train(rig.thread, part, lease, HYPER, totals)
            assert totals[ROWS] == len(part) and totals[UPDATES] == len(part) / 3
        assert len(rig.builds) == 3
        params.append(rig.given.model.params)
    assert_array_equal(params[0], params[1])
    assert_array_equal(params[0], params[2])


def test_a_raised_fence_stops_a_lease_without_a_build(monkeypatch):
    rig = Rig(monkeypatch, wide(rehash=1))
    lease = BatchSettings(3, LOSSES["multilabel-softmax"], OPTIMIZERS["adam"], 0, 1)
    rig.given.fence[0] = 1
    totals = np.zeros(TOTALS)
    rig.layer.train(rig.thread, np.arange(30), lease, HYPER, totals)
    assert not totals.any() and not rig.builds


# --- in the background --------------------------------------------------------------------------


@pytest.fixture
def background(monkeypatch):
    """A layer that builds in the background; builds release `began` and wait for `go`."""
    rig = Rig(monkeypatch, wide(background=True, rehash=1))
    rig.began, rig.go = threading.Semaphore(0), threading.Semaphore(0)

    def wait():
        rig.began.release()
        assert rig.go.acquire(timeout=WITHIN_S)

    rig.builds.before = wait
    yield rig
    for _ in range(100):
        rig.go.release()


def test_threads_read_the_old_tables_while_others_are_filled(background):
    with background.layer._finder() as old:
        background.layer._end(0, 1)
        assert background.began.acquire(timeout=WITHIN_S)
        before = old.tables.counts.copy(), old.tables.buckets.copy()
        with background.layer._finder() as second:
            assert second is old
        output_weights(background.given)[:] *= -1
        background.go.release()
        wait_for(background, lambda finder: finder is not old)
        assert_array_equal(old.tables.counts, before[0])  # they are still being read
        assert_array_equal(old.tables.buckets, before[1])
    with background.layer._finder() as new:
        assert new.tables.buckets is not old.tables.buckets


def test_tables_are_not_filled_while_they_are_read(background):
    """The second build waits for the tables that a slow thread still reads."""
    reading = background.layer._finder()
    old = reading.__enter__()
    background.layer._end(0, 1)
    background.go.release()
    wait_for(background, lambda finder: finder is not old)
    assert background.began.acquire(timeout=WITHIN_S)
    waiting = watched(background.layer)
    background.layer._end(0, 1)
    assert waiting.wait(WITHIN_S)  # the builder waits for readers
    assert not background.began.acquire(blocking=False)
    reading.__exit__(None, None, None)
    assert background.began.acquire(timeout=WITHIN_S)
    background.go.release()
    wait_for(background, lambda finder: finder.tables is old.tables)


def watched(layer):
    """An event that is set once a build waits for readers."""
    waiting, wait_for = threading.Event(), layer._condition.wait_for

    def watch(condition):
        if not condition():
            waiting.set()
        return wait_for(condition)

    layer._condition.wait_for = watch
    return waiting


def wait_for(rig, condition):
    """Wait until the current tables satisfy `condition`."""
    deadline = threading.Event()
    for _ in range(WITHIN_S * 200):
        with rig.layer._finder() as finder:
            if condition(finder):
                return
        deadline.wait(0.005)
    raise AssertionError("the tables were not swapped")


# --- the engine -----------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [False, True])
def test_an_engine_trains_and_evaluates_exactly(background):
    posts = queue.SimpleQueue()

    def work_on(task, leases):
        """Run leases over all rows; with two threads, they end in any order."""
        for number in range(leases):
            engine.submit(Lease(number, task, 0, 0, WIDE_ROWS, 4, 0.02, 0))
        done = [posts.get(timeout=WITHIN_S) for _ in range(leases)]
        assert all(isinstance(one, Done) and one.rows == WIDE_ROWS for one in done)
        return done

    engine = CpuEngine(1 + background)
    engine.prepare(wide(background=background), posts.put)
    (before,), trained = work_on("test", 1), work_on("train", 12)
    (after,) = work_on("test", 1)
    assert after.loss < 0.8 * before.loss
    assert all(0 < each.active <= NEURONS for each in trained)


def test_an_error_in_a_build_reaches_the_session(monkeypatch):
    posts, engine = queue.SimpleQueue(), CpuEngine(1)
    engine.prepare(wide(background=True, rehash=1), posts.put)

    def fail(*arguments):
        raise HogbatchError("no room for tables")

    monkeypatch.setattr(hash_tables, "clear", fail)
    engine.submit(Lease(1, "train", 0, 0, WIDE_ROWS, 4, 0.02, 0))
    heard = [posts.get(timeout=WITHIN_S) for _ in range(2)]
    (error,) = [one for one in heard if not isinstance(one, Done | Failed)]
    assert isinstance(error, HogbatchError) and str(error) == "no room for tables"
