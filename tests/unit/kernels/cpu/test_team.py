"""The threads of a team train as one thread does with the same batches."""

import sys
import threading
import time

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.common.job import WITHIN_S
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import ROWS, SKIPPED, SKIPPED_ROW, TOTALS, UPDATES, add_totals
from hogbatch.kernels.cpu.barrier import ARRIVED, PASSED, abandon, new_barrier, wait_for_all
from hogbatch.kernels.cpu.team import Team, memory_for, train
from tests.support.pairs import pairs
from tests.unit.kernels.cpu.test_network import AXES, BATCH, STEPS, Case

COMPILED = not numba.config.DISABLE_JIT
ROUNDS = 3000 if COMPILED else 200
SWITCH_S = 1e-5  # between threads that run Python; usually 5 ms, which waiting threads would spin


@pytest.fixture(autouse=True)
def short_turns():
    """Threads take turns often where kernels are not compiled, and so hold the interpreter lock."""
    before = sys.getswitchinterval()
    if not COMPILED:
        sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(before)


def run_together(count, work):
    """Run work(number) on `count` threads; raise what one of them raises."""
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)
        assert not thread.is_alive(), "a thread still waits for the others"
    if failures:
        raise failures[0]


def new_team(case, size, batch=BATCH):
    """A team of `size` threads on the network of `case`."""
    model, sparse = case._model(), len(case.inputs.indptr) > 0
    count = memory_for(model.table, sparse, batch)
    activations, grads = np.full((2, count), np.nan, np.float32)
    return Team(size, new_barrier(), np.zeros(1, np.int64), activations, grads)


def train_together(case, size, batch=BATCH, team=None):
    """Train `case` as `Case.compile` does, on `size` threads."""
    model, team, totals = (
        case._model(),
        team or new_team(case, size, batch),
        np.zeros((size, TOTALS)),
    )

    def work(member):
        train(
            *(model, *case.rows, case.order, case._lease(batch), case.hyper),
            *(np.full_like(case.head, -1), case.fence, totals[member], team, member),
        )

    run_together(size, work)
    for part in totals:
        add_totals(part, case.totals)
    return case


def test_a_barrier_holds_until_all_have_arrived():
    size, barrier, seen = 3, new_barrier(), np.zeros((3, ROUNDS), np.int64)
    counts = np.zeros(3, np.int64)

    def work(member):
        for number in range(ROUNDS):
            counts[member] += 1
            wait_for_all(barrier, size)
            seen[member, number] = counts.min()
            wait_for_all(barrier, size)

    run_together(size, work)
    for each in seen:
        assert_array_equal(each, np.arange(1, ROUNDS + 1))


@pytest.mark.parametrize("waits", [False, True], ids=["before", "after"])
def test_nobody_waits_at_a_barrier_that_was_abandoned(waits):
    """Whether a thread arrives before or after that."""
    barrier, results = new_barrier(), []

    def work(member):
        if member == 1:
            while waits and barrier[ARRIVED] == 0:
                time.sleep(0.001)
            abandon(barrier)
        else:
            while not waits and barrier[PASSED] == 0:
                time.sleep(0.001)
            results.append(wait_for_all(barrier, 2))

    run_together(2, work)
    assert results == [False]
    assert not wait_for_all(barrier, 2)


@pairs(**AXES, size=[1, 2, 3] if COMPILED else [2])
def test_a_team_trains_as_one_thread(optimizer, loss, size, hidden):
    together, alone = (Case(loss, optimizer, hidden=hidden) for _ in range(2))
    train_together(together, size)
    alone.compile()
    assert_allclose(together.params, alone.params, rtol=0, atol=1e-5)
    assert_allclose(together.totals, alone.totals, rtol=1e-5)
    assert together.totals[UPDATES] == STEPS == together.steps[0]
    for ours, theirs in zip(together.slots, alone.slots, strict=True):
        assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_team_of_one_trains_sparse_rows_as_one_thread(optimizer):
    together, alone = (Case(optimizer=optimizer, sparse=True) for _ in range(2))
    train_together(together, 1)
    alone.compile()
    assert_allclose(together.params, alone.params, rtol=0, atol=1e-5)
    assert_allclose(together.totals, alone.totals, rtol=1e-5)


@pytest.mark.skipif(not COMPILED, reason="interpreted threads lose more of each other's changes")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_members_update_the_features_of_their_own_rows(optimizer):
    together, alone = (Case("softmax", optimizer, sparse=True) for _ in range(2))
    start = alone.params.copy()
    train_together(together, 2)
    alone.compile()
    assert together.totals[ROWS] == len(together.order)
    moved = np.abs(alone.params - start).max()
    # Two members may change one weight at the same time, and one change may be lost.
    assert np.abs(together.params - alone.params).max() < moved / 2


def test_a_batch_of_fewer_rows_than_threads():
    together, alone = (Case(rows=5) for _ in range(2))
    together.order = alone.order = np.arange(5)
    train_together(together, 4, batch=3)
    alone.compile(batch=3)
    assert_allclose(together.params, alone.params, rtol=0, atol=1e-6)


def test_a_team_stops_when_the_fence_moves():
    case = Case()
    start = case.params.copy()
    case.fence[0] += 1
    train_together(case, 3)
    assert_array_equal(case.params, start)
    assert not case.totals.any()


@pytest.mark.skipif(not COMPILED, reason="interpreted kernels warn, and warnings are errors here")
def test_a_row_that_is_not_finite_is_skipped_by_its_member_only():
    together, alone = (Case() for _ in range(2))
    for case in (together, alone):
        case.inputs.dense[case.order[1], 0] = np.inf
    train_together(together, 2)
    alone.compile()
    assert together.totals[SKIPPED] == alone.totals[SKIPPED] > 0
    assert together.totals[SKIPPED_ROW] == alone.totals[SKIPPED_ROW]
    assert np.isfinite(together.params).all()
    assert_allclose(together.params, alone.params, rtol=0, atol=1e-5)
