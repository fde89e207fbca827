"""Linear models over sparse rows do on their own path what any network does batch by batch."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import ROWS, SKIPPED, SKIPPED_ROW, UPDATES
from tests.support.compiled_networks import Case
from tests.support.pairs import pairs

SET = 60


def case(loss="logistic", optimizer="sgd", l2=0.01, rows=300):
    sizes = {"features": 50, "outputs": 1, "rows": SET, "leased": rows, "batch": 7}
    return Case(loss, optimizer, sparse=True, hidden=(), l2=l2, **sizes)


@pairs(
    optimizer=list(OPTIMIZERS),
    loss=["logistic", "hinge", "squared"],
    l2=[0.0, 0.01],
    batch=[1, 2, 7, 64, 1024],
)
def test_a_lease_trains_as_its_batches_on_the_reference(optimizer, loss, l2, batch):
    fast, slow = (case(loss, optimizer, l2) for _ in range(2))
    start = fast.params.copy()
    fast.train(batch), slow.interpret(batch)
    assert np.abs(slow.params - start).max() > 1e-3  # it did train
    assert_allclose(fast.params, slow.params, rtol=1e-4, atol=1e-5)
    assert_allclose(fast.totals, slow.totals, rtol=1e-5)
    for ours, theirs in zip(fast.slots, slow.slots, strict=True):
        assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    assert fast.totals[UPDATES] == fast.steps[0] == -(-len(fast.order) // batch)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_outlier_is_held_back_as_on_the_reference(optimizer):
    fast, slow = (case("squared", optimizer) for _ in range(2))
    for each in (fast, slow):
        each.inputs.values[each.inputs.indptr[-2] :] *= 100  # the last row, which is full
    fast.train(), slow.interpret()
    assert_allclose(fast.params, slow.params, rtol=1e-3, atol=1e-4)


@pairs(optimizer=list(OPTIMIZERS), batch=[1, 8], scored=[False, True])
def test_rows_that_are_not_finite_are_counted_and_leave_the_model_finite(optimizer, batch, scored):
    """A row that is huge may be `scored`: at the beginning of training every score is finite."""
    found, bad = case("logistic" if scored else "squared", optimizer), SET - 1
    found.inputs.values[found.inputs.indptr[bad] :] = 3e38
    if scored:
        found.params[:] = 0
        found.order[found.order == bad] = 1
    found.order[0 if scored else 5] = bad
    totals = found.train(batch).totals
    if not scored:
        assert totals[SKIPPED] == np.count_nonzero(found.order == bad)
        assert totals[SKIPPED_ROW] == bad + 1
    assert totals[ROWS] == len(found.order)
    assert found.is_finite()


def test_a_fence_raised_meanwhile_stops_a_lease_between_two_batches():
    found = case("squared").train()  # compiled from here on
    found.totals[:] = 0
    found.order = np.resize(found.order, 20_000_000)
    lease = threading.Thread(target=found.train)
    lease.start()
    while not found.totals[ROWS] and lease.is_alive():
        pass
    found.fence[0] += 1
    lease.join()
    assert 0 < found.totals[ROWS] < len(found.order) and found.totals[ROWS] % 7 == 0
