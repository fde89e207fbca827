"""The wide loop trains an output-major layer as the reference does."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import ROWS, SKIPPED, SKIPPED_ROW, UPDATES
from hogbatch.kernels.cpu import wide
from hogbatch.kernels.dropout import Dropout
from tests.support.kernel_cases import FORMS
from tests.support.pairs import pairs
from tests.support.stored import to_stored
from tests.support.wide_networks import BATCH, HIDDEN, WIDE_LOSSES, WideCase


def case(**changes):
    return WideCase(classes=wide.BLOCK + 43, **changes)  # two blocks, the second ragged


@pairs(optimizer=list(OPTIMIZERS), loss=WIDE_LOSSES, sparse=FORMS, hidden=HIDDEN)
def test_it_trains_as_the_reference_does(optimizer, loss, sparse, hidden):
    ours, theirs = (
        case(loss=loss, optimizer=optimizer, sparse=sparse, hidden=hidden) for _ in "ab"
    )
    start = ours.tensors()
    ours.train(), theirs.interpret()
    for name, tensor in theirs.tensors().items():
        atol = 2e-5 if "params" in name else 1e-6 * float(np.abs(tensor).max())
        assert_allclose(ours.tensors()[name], tensor, rtol=2e-3, atol=atol, err_msg=name)
        assert (tensor != start[name]).any(), f"{name} did not train"
    assert_allclose(ours.totals, theirs.totals, rtol=1e-5)
    assert ours.totals[UPDATES] == ours.steps[0] == 3
    for flat in (ours.params, *ours.slots):  # padding stays zero
        packed = np.zeros_like(flat)
        if flat.size:
            to_stored(ours.network, ours.network.from_stored(flat), packed)
        assert_array_equal(packed, flat)


@pytest.mark.no_own_indices
@pytest.mark.parametrize("sparse", FORMS.values(), ids=FORMS)
def test_dropout_trains_as_on_the_reference(sparse):
    dropout = Dropout(0.4, 5)
    ours, theirs = (case(sparse=sparse, hidden=(20, 33), dropout=dropout) for _ in "ab")
    ours.train(), theirs.interpret()
    assert_allclose(ours.params, theirs.params, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_an_outlier_is_bounded_as_on_the_reference(optimizer):
    ours, theirs = (case(optimizer=optimizer, hidden=(20, 33)) for _ in "ab")
    for each in (ours, theirs):
        each.order = each.order[:BATCH]
        each.inputs.dense[each.order[2]] *= 100
    ours.train(), theirs.interpret()
    assert_allclose(ours.params, theirs.params, rtol=1e-3, atol=1e-4)


def test_each_thread_keeps_its_own_slots_and_allows_for_other_threads():
    alone, shared = case(optimizer="adagrad"), case(optimizer="adagrad")
    own = [slot.copy() for slot in shared.slots]
    shared.hyper = shared.hyper._replace(rate=2 * shared.hyper.rate)  # over sqrt(4)
    alone.train(), shared.train(threads=4, own=own)
    weight = alone.network.tensors()[-2]
    assert_allclose(weight.view(shared.params), weight.view(alone.params), rtol=1e-5, atol=1e-7)
    assert_allclose(weight.view(own[0]), weight.view(alone.slots[0]), rtol=1e-4, atol=1e-9)
    assert not weight.view(shared.slots[0]).any()


def test_it_stops_at_a_raised_fence():
    stopped = case()
    before = stopped.params.copy()
    stopped.train(fence=np.zeros(8, np.int64))
    assert_array_equal(stopped.params, before)
    assert stopped.totals[ROWS] == 0


def test_a_row_that_is_not_finite_is_skipped():
    bad = case()
    bad.inputs.dense[bad.order[0]] = np.inf
    totals = bad.train().totals
    assert totals[SKIPPED] == (bad.order == bad.order[0]).sum()
    assert (totals[SKIPPED_ROW], totals[ROWS]) == (bad.order[0] + 1, len(bad.order))
    assert bad.is_finite()
