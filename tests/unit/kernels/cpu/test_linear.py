"""Linear models over sparse rows do on their own path what any network does batch by batch."""

import threading

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch import kernels
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import (
    LOSS,
    LOSSES,
    ROWS,
    SKIPPED,
    SKIPPED_ROW,
    TOTALS,
    UPDATES,
    Hyper,
)
from hogbatch.kernels.cpu import linear, model as compiled
from hogbatch.kernels.executor import Executor as Interpreted, corrected
from hogbatch.model.network import Network
from tests.support.kernel_cases import csr_set, labels_for, overflowing, read_only
from tests.support.pairs import pairs

pytestmark = pytest.mark.vector_width

FEATURES, SET, FENCE = 50, 60, 5
JIT = not numba.config.DISABLE_JIT


class Case:
    """A linear model, its data and its optimizer's state; the same arguments, the same numbers."""

    def __init__(self, loss="logistic", optimizer="sgd", l2=0.01, rows=1000 if JIT else 130):
        random = np.random.default_rng(3)
        self.network = Network.build(FEATURES, (), 1, "relu", loss)
        self.params = np.zeros(self.network.parameters, np.float32)
        for tensor in self.network.tensors():
            tensor.view(self.params)[...] = random.normal(0, 0.5, tensor.shape)
        self.inputs = csr_set(random, FEATURES, SET)
        self.inputs.values[:] /= 4
        self.loss, self.spec = LOSSES[loss], OPTIMIZERS[optimizer]
        self.labels = labels_for(random, self.loss, 1, SET)
        size = self.params.size
        self.slots = [np.zeros(size if n < self.spec.slots else 0, np.float32) for n in range(2)]
        self.steps, self.totals = np.zeros(1, np.int64), np.zeros(TOTALS)
        self.order = random.integers(0, SET, rows)
        # An epsilon that shows, so that rounding does not decide the sign of a step.
        self.hyper = Hyper(0.02, l2, self.spec.momentum, self.spec.beta2, 1e-3)
        self.head = np.full(self.network.layer_views()[0].fan_in, -1, np.int32)
        self.fence = np.full(8, FENCE)

    def train(self, batch):
        """All rows in one call."""
        plan = np.array(self.network.layer_views(), np.int64)
        model = compiled.ModelView(plan, self.params, *self.slots, self.steps, *self.slots)
        lease = compiled.BatchSettings(batch, self.loss, self.spec.kind, FENCE, 1)
        linear.train(
            model,
            read_only(self.inputs),
            read_only(self.labels),
            self.order,
            lease,
            self.hyper,
            self.head,
            self.fence,
            self.totals,
        )
        return self

    def interpret(self, batch):
        """The same on the reference backend, one batch at a time."""
        network = Interpreted(
            kernels.load("reference"), np, self.network.layer_views(), self.params, *self.slots
        )
        for t, start in enumerate(range(0, len(self.order), batch), 1):
            hyper = corrected(self.spec.kind, self.hyper, t)
            rows = self.order[start : start + batch]
            network.train_batch(
                self.inputs, self.labels, rows, self.loss, self.spec.kind, hyper, self.totals
            )
            self.totals[[ROWS, UPDATES]] += len(rows), 1
        return self


@pairs(
    optimizer=list(OPTIMIZERS),
    loss=["logistic", "hinge", "squared"],
    l2=[0.0, 0.01],
    batch=[1, 2, 7, 64, 1024],
)
def test_a_lease_trains_as_its_batches_on_the_reference(optimizer, loss, l2, batch):
    fast, slow = (Case(loss, optimizer, l2) for _ in range(2))
    start = fast.params.copy()
    fast.train(batch), slow.interpret(batch)
    assert np.abs(slow.params - start).max() > 1e-3  # it did train
    assert_allclose(fast.params, slow.params, rtol=1e-4, atol=1e-5)
    assert_allclose(fast.totals, slow.totals, rtol=1e-5)
    for ours, theirs in zip(fast.slots, slow.slots, strict=True):
        assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    assert fast.totals[ROWS] == len(fast.order)
    assert fast.totals[UPDATES] == fast.steps[0] == -(-len(fast.order) // batch)
    assert (fast.head == -1).all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_outlier_is_held_back_as_on_the_reference(optimizer):
    fast, slow = (Case("squared", optimizer) for _ in range(2))
    for case in (fast, slow):
        case.inputs.values[case.inputs.indptr[-2] :] *= 100  # the last row, which is full
    fast.train(7), slow.interpret(7)
    assert_allclose(fast.params, slow.params, rtol=1e-3, atol=1e-4)


@overflowing
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("batch", [1, 8])
def test_rows_that_are_not_finite_are_counted_and_leave_the_model_finite(optimizer, batch):
    case = Case("squared", optimizer)
    bad = SET - 1
    case.inputs.values[case.inputs.indptr[bad] :] = 3e38
    case.order[5] = bad
    case.train(batch)
    assert case.totals[SKIPPED] == np.count_nonzero(case.order == bad)
    assert case.totals[SKIPPED_ROW] == bad + 1
    assert case.totals[ROWS] == len(case.order)
    assert np.isfinite(case.params).all() and np.isfinite(case.totals[LOSS])
    assert all(np.isfinite(slot).all() for slot in case.slots)
    assert (case.head == -1).all()


@overflowing
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("batch", [1, 8])
def test_a_row_that_is_huge_but_scored_leaves_the_model_finite(optimizer, batch):
    case, bad = Case("logistic", optimizer), SET - 1
    case.params[:] = 0  # as training begins: every score is finite
    case.inputs.values[case.inputs.indptr[bad] :] = 3e38
    case.order[:] = np.where(case.order == bad, 1, case.order)
    case.order[[0, 1, 7]] = bad
    case.train(batch)
    assert np.isfinite(case.params).all() and np.isfinite(case.totals[LOSS])
    assert all(np.isfinite(slot).all() for slot in case.slots)


def test_a_raised_fence_stops_a_lease_before_its_first_row():
    case = Case(optimizer="adam")
    case.fence[0] += 1
    before = case.params.copy()
    case.train(4)
    assert_array_equal(case.params, before)
    assert not case.totals.any() and case.steps[0] == 0


@pytest.mark.skipif(not JIT, reason="interpreted, the lease would take minutes")
def test_a_fence_raised_meanwhile_stops_a_lease_between_two_batches():
    case = Case("squared")
    case.train(4)  # compiled from here on
    case.totals[:] = 0
    case.order = np.resize(case.order, 20_000_000)
    lease = threading.Thread(target=case.train, args=(4,))
    lease.start()
    while not case.totals[ROWS] and lease.is_alive():
        pass
    case.fence[0] += 1
    lease.join()
    assert 0 < case.totals[ROWS] < len(case.order) and case.totals[ROWS] % 4 == 0
    assert (case.head == -1).all()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_rows_without_a_stored_value_train_the_bias(optimizer):
    case = Case("squared", optimizer, rows=100)
    case.order[:] = 0  # the row without values
    case.labels.values[:] = 4
    before = case.network.from_stored(case.params.copy())
    after = case.train(8).network.from_stored(case.params)
    name = "layers.0.bias"
    assert abs(after[name] - 4) < abs(before[name] - 4)
    assert_array_equal(after["layers.0.weight"], before["layers.0.weight"])
