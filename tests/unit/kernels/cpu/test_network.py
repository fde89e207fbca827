"""The compiled loops train and evaluate a lease as the interpreted loop does batch by batch."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import dense_inputs
from hogbatch.kernels.contract import LOSS, LOSSES, METRIC_SUMS, ROWS, SKIPPED, SKIPPED_ROW, UPDATES
from hogbatch.kernels.cpu import network as compiled
from hogbatch.kernels.dropout import Dropout
from tests.support import plain_sgd
from tests.support.compiled_networks import FEATURES, HIDDEN, RATES, Case
from tests.support.executor_runs import scores_of
from tests.support.kernel_cases import FORMS, toarray
from tests.support.pairs import pairs
from tests.support.stored_scores import assert_stored, both_forms

SET, BATCH, RAGGED = 40, 4, 3  # rows of the set, of a batch, and of the last
STEPS = 60
AXES = {
    "optimizer": list(OPTIMIZERS),
    "loss": list(LOSSES),
    "hidden": [(), (24,), (20, 12), (17, 9)],
}
forms = pytest.mark.parametrize("sparse", FORMS.values(), ids=FORMS)


def case(*arguments, **keywords):
    return Case(*arguments, **keywords, batch=BATCH, leased=STEPS * BATCH - BATCH + RAGGED)


def assert_same(ours, theirs):
    """Check that two cases have the same parameters, totals and slots."""
    assert_allclose(ours.params, theirs.params, rtol=0, atol=1e-5)
    assert_allclose(ours.totals, theirs.totals, rtol=1e-5)
    for slot, other in zip(ours.slots, theirs.slots, strict=True):
        assert_allclose(slot, other, rtol=1e-3, atol=1e-5)


@pairs(**AXES, sparse=FORMS)
def test_a_lease_trains_as_its_batches_on_the_reference(optimizer, loss, sparse, hidden):
    fast, slow = (case(loss, optimizer, sparse=sparse, hidden=hidden) for _ in range(2))
    start = fast.params.copy()
    fast.train(), slow.interpret()
    assert np.abs(slow.params - start).max() > 0.01  # it did train
    assert_same(fast, slow)
    assert fast.totals[ROWS] == len(fast.order) and fast.totals[UPDATES] == STEPS == fast.steps[0]


@pairs(loss=list(LOSSES), sparse=FORMS)
def test_a_lease_evaluates_as_the_reference(loss, sparse):
    fast, slow = (case(loss, sparse=sparse) for _ in range(2))
    start, totals = fast.params.copy(), slow.totals
    slow.executor().evaluate_batch(slow.inputs, slow.labels, slow.order, slow.loss, totals)
    totals[ROWS] = len(slow.order)
    scores = scores_of(slow.executor(), slow.inputs, slow.order)
    for stored in both_forms(SET, slow.classes):
        fast.totals[:] = 0
        assert_allclose(fast.evaluate(stored), totals, rtol=1e-5)
        assert_stored(stored, slow.order, scores[:, : slow.classes])
    assert totals[METRIC_SUMS] > 0
    assert_array_equal(fast.params, start)


@pairs(**AXES | {"loss": list(plain_sgd.GRADIENTS)})
def test_a_lease_trains_as_the_textbook_formula(optimizer, loss, hidden):
    # A weight whose feature does not occur in a batch is not changed, where the textbook's momentum
    # would move it: the two agree on sparse inputs only for optimizers without momentum.
    for sparse in (False, True) if optimizer in ("sgd", "adagrad") else (False,):
        ours = case(loss, optimizer, sparse=sparse, hidden=hidden, l2=0.0)
        dense = toarray(ours.inputs, FEATURES) if sparse else ours.inputs.dense
        batches = [
            (dense[rows].astype(float), *(each[rows] for each in ours.row_labels))
            for rows in np.split(ours.order, range(BATCH, len(ours.order), BATCH))
        ]
        layers = plain_sgd.layers_of(ours.network.from_stored(ours.params))
        spec, rate = replace(ours.spec, epsilon=ours.hyper.epsilon), RATES[optimizer]
        plain_sgd.train(layers, HIDDEN[hidden], loss, batches, spec, rate)
        trained = plain_sgd.layers_of(ours.train().network.from_stored(ours.params))
        for found, expected in zip(*map(chain.from_iterable, (trained, layers)), strict=True):
            assert_allclose(found, expected, rtol=0, atol=2e-5)


@pairs(optimizer=["sgd", "momentum"], sparse=FORMS)
def test_an_outlier_is_bounded_as_on_the_reference(optimizer, sparse):
    fast, slow = (case(optimizer=optimizer, sparse=sparse) for _ in range(2))
    for each in (fast, slow):
        cells = each.inputs.values[each.inputs.indptr[-2] :] if sparse else each.inputs.dense[-1]
        cells *= 100  # the last row, which is full
        each.order = np.array([1, SET - 1, 2, 3])
    fast.train(), slow.interpret()
    assert_allclose(fast.params, slow.params, rtol=1e-3, atol=1e-4)


def test_one_of_four_threads_scales_its_own_sums_of_squares_by_four():
    alone, among = (case(optimizer="adagrad") for _ in range(2))
    alone.hyper = alone.hyper._replace(rate=alone.hyper.rate / 2)
    own = [np.zeros_like(slot) for slot in among.slots]
    alone.train(), among.train(threads=4, own=own)
    assert_allclose(among.params, alone.params, rtol=0, atol=1e-6)
    assert own[0].any() and not among.slots[0].any()


@forms
def test_only_a_raised_fence_stops_a_lease(sparse):
    stopped, case_ = (case(optimizer="adam", sparse=sparse) for _ in range(2))
    stopped.fence[0] += 1
    before = stopped.params.copy()
    stopped.train().evaluate()
    assert_array_equal(stopped.params, before)
    assert not stopped.totals.any() and stopped.steps[0] == 0
    case_.fence[1:] = -1  # only the first word counts
    assert case_.train().totals[ROWS] == len(case_.order)


# The readers refuse stored values that are nan: only dense inputs can contain one.
@pytest.mark.parametrize(
    ("sparse", "poison"), [(False, np.nan), (False, np.inf), (False, 3e38), (True, 3e38)]
)
@pytest.mark.parametrize("hidden", [(), (24,)], ids=["linear", "deep"])
def test_rows_that_are_not_finite_are_counted_and_leave_the_model_finite(hidden, sparse, poison):
    bad, found = SET - 1, case("squared", "momentum", sparse=sparse, hidden=hidden)
    if sparse:  # the full row
        found.inputs.values[found.inputs.indptr[bad] :] = poison
    else:
        found.inputs.dense[bad] = poison
    found.order[5] = bad
    totals = found.train().totals
    assert totals[SKIPPED] == np.count_nonzero(found.order == bad)
    assert (totals[SKIPPED_ROW], totals[ROWS]) == (bad + 1, len(found.order))
    assert found.is_finite()


@pairs(sparse=FORMS, batch=[1, 7, 64, 10_000])
def test_any_batch_size_covers_every_row(sparse, batch):
    found = case(sparse=sparse)
    found.order = found.order[:25]
    assert found.train(batch).totals[[ROWS, UPDATES]].tolist() == [25, -(-25 // batch)]


@forms
def test_rows_without_a_stored_value_train_the_bias(sparse):
    found = case("squared", sparse=sparse, hidden=(), outputs=1)
    if not sparse:
        found.inputs = dense_inputs(found.inputs.dense * 0)
    found.order = np.zeros(8, np.int64)  # of a sparse set the row without values
    found.labels.values[:] = 4
    before, after = found.tensors(), found.train().tensors()
    assert abs(after["params layers.0.bias"] - 4) < abs(before["params layers.0.bias"] - 4)


def test_each_kernel_is_compiled_once_for_dense_and_sparse_leases():
    for sparse in (False, True):
        for optimizer in OPTIMIZERS:
            assert case(optimizer=optimizer, sparse=sparse).train().evaluate()[LOSS] > 0
    for loop in (compiled.train, compiled.evaluate):
        without = [each for each in loop.for_python.signatures if "Dropout" not in str(each)]
        assert len(without) == 1  # other tests may have compiled the version with dropout


DROPOUT = Dropout(0.4, 2**40 + 3)


@pytest.mark.no_own_indices
@pairs(
    optimizer=list(OPTIMIZERS), loss=["softmax", "squared"], sparse=FORMS, hidden=[(24,), (20, 33)]
)
def test_dropout_trains_as_on_the_reference(optimizer, loss, sparse, hidden):
    fast, slow, plain = (
        case(loss, optimizer, sparse=sparse, hidden=hidden, dropout=dropout)
        for dropout in (DROPOUT, DROPOUT, None)
    )
    fast.train(), slow.interpret(), plain.train()
    assert_same(fast, slow)
    assert np.abs(fast.params - plain.params).max() > 0.01


@pytest.mark.no_own_indices
def test_an_evaluation_leaves_nothing_out():
    whole, dropped = case(), case(dropout=DROPOUT)
    assert_array_equal(whole.evaluate(), dropped.evaluate())
