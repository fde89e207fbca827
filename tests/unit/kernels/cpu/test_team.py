"""The threads of a team train as one thread does with the same batches."""

import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks.common.job import WITHIN_S
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import csr_inputs
from hogbatch.kernels.contract import SKIPPED, TOTALS, UPDATES, add_totals
from hogbatch.kernels.cpu.barrier import ARRIVED, PASSED, abandon, new_barrier, wait_for_all
from hogbatch.kernels.cpu.network import layer_starts
from hogbatch.kernels.cpu.team import Team, train
from tests.support.compiled_networks import FEATURES
from tests.support.pairs import pairs
from tests.unit.kernels.cpu.test_network import AXES, BATCH, DROPOUT, STEPS, assert_same, case

ROUNDS = 3000


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


def train_together(trained, size, batch=BATCH):
    """Train as `Case.train` does, on `size` threads."""
    model, totals = trained.model(), np.zeros((size, TOTALS))
    count = layer_starts(model.table, len(trained.inputs.indptr) > 0, batch)[-1]
    activations, grads = np.full((2, count), np.nan, np.float32)
    team = Team(size, new_barrier(), np.zeros(1, np.int64), activations, grads)

    def work(member):
        train(
            *(model, *trained.rows, trained.order, trained.lease(batch), trained.hyper),
            *(np.full_like(trained.head, -1), trained.fence, totals[member], team, member),
        )

    run_together(size, work)
    for part in totals:
        add_totals(part, trained.totals)
    return trained


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


@pairs(**AXES, size=[1, 2, 3])
def test_a_team_trains_as_one_thread(optimizer, loss, size, hidden):
    together, alone = (case(loss, optimizer, hidden=hidden) for _ in range(2))
    assert_same(train_together(together, size), alone.train())
    assert together.totals[UPDATES] == STEPS == together.steps[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_team_of_one_trains_sparse_rows_as_one_thread(optimizer):
    together, alone = (case(optimizer=optimizer, sparse=True) for _ in range(2))
    assert_same(train_together(together, 1), alone.train())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_members_update_the_features_of_their_own_rows(optimizer):
    """Rows of a batch have no feature in common, so that no change is lost."""
    together, alone = (case(optimizer=optimizer, sparse=True) for _ in range(2))
    random, ones = np.random.default_rng(1), np.ones(FEATURES, np.float32)
    order = [random.permutation(FEATURES)[: 2 * BATCH] for _ in range(STEPS // 2)]
    for each in (together, alone):
        each.inputs = csr_inputs(np.arange(FEATURES + 1), np.arange(FEATURES, dtype=np.int32), ones)
        each.order = np.concatenate(order)
    assert_same(train_together(together, 2), alone.train())


@pytest.mark.no_own_indices
def test_members_leave_out_the_outputs_that_one_thread_leaves_out():
    settings = {"optimizer": "adam", "hidden": (20, 33), "dropout": DROPOUT}
    together, alone = (case(**settings) for _ in range(2))
    assert_same(train_together(together, 3), alone.train())


def test_a_batch_of_fewer_rows_than_threads():
    together, alone = (case(rows=5) for _ in range(2))
    together.order = alone.order = np.arange(5)
    assert_same(train_together(together, 4, batch=3), alone.train(batch=3))


def test_a_team_stops_when_the_fence_moves():
    stopped = case()
    start = stopped.params.copy()
    stopped.fence[0] += 1
    assert not train_together(stopped, 3).totals.any()
    assert_array_equal(stopped.params, start)


def test_a_row_that_is_not_finite_is_skipped_by_its_member_only():
    together, alone = (case() for _ in range(2))
    for each in (together, alone):
        each.inputs.dense[each.order[1], 0] = np.inf
    assert_same(train_together(together, 2), alone.train())
    assert together.totals[SKIPPED] > 0 and together.is_finite()
