"""The wide loop trains an output-major layer as the reference does.

Meant to pass without the JIT too (NUMBA_DISABLE_JIT=1).
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import LOSS, ROWS, SKIPPED, SKIPPED_ROW, UPDATES
from hogbatch.kernels.cpu import wide
from tests.support.kernel_cases import FORMS
from tests.support.pairs import pairs
from tests.support.wide_networks import BATCH, HIDDEN, SET, WIDE_LOSSES, Case

CLASSES = wide.BLOCK + 43  # two blocks, the second ragged


def train(case, *, threads=1, own=None, fence=None):
    wide.train(
        *(case.model(own), *case.rows, case.order, case.lease(BATCH, threads)),
        *(case.hyper, case.head, case.fence if fence is None else fence, case.totals),
    )
    assert (case.head == -1).all()
    return case


def case(**changes):
    return Case(classes=CLASSES, **changes)


@pairs(optimizer=list(OPTIMIZERS), loss=WIDE_LOSSES, sparse=FORMS, hidden=list(HIDDEN))
def test_it_trains_as_the_reference_does(optimizer, loss, sparse, hidden):
    ours, theirs = (
        case(loss=loss, optimizer=optimizer, sparse=sparse, hidden=hidden) for _ in "ab"
    )
    start = ours.tensors()
    train(ours), theirs.interpret()
    for name, tensor in theirs.tensors().items():
        atol = 2e-5 if "params" in name else 1e-6 * float(np.abs(tensor).max())
        assert_allclose(ours.tensors()[name], tensor, rtol=2e-3, atol=atol, err_msg=name)
        assert (tensor != start[name]).any(), f"{name} did not train"
    assert_allclose(ours.totals, theirs.totals, rtol=1e-5)
    assert ours.totals[UPDATES] == ours.steps[0] == 3


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_an_outlier_is_bounded_as_on_the_reference(optimizer):
    ours, theirs = (case(optimizer=optimizer, hidden=(20, 33)) for _ in "ab")
    for each in (ours, theirs):
        each.order = each.order[:BATCH]
        each.inputs.dense[each.order[2]] *= 100
    train(ours), theirs.interpret()
    assert_allclose(ours.params, theirs.params, rtol=1e-3, atol=1e-4)


def test_padding_stays_zero():
    trained = train(case(optimizer="adam"))
    weight, bias = trained.network.tensors()[-2:]
    stored = trained.params[weight.offset :][: np.prod(weight.stored)].reshape(weight.stored)
    assert not stored[CLASSES:].any() and not stored[:, weight.shape[1] :].any()
    assert not trained.params[bias.offset :][CLASSES : bias.stored[0]].any()


def test_each_thread_keeps_its_own_slots_and_allows_for_other_threads():
    alone, shared = case(optimizer="adagrad"), case(optimizer="adagrad")
    own = [slot.copy() for slot in shared.slots]
    shared.hyper = shared.hyper._replace(rate=2 * shared.hyper.rate)  # over sqrt(4)
    train(alone), train(shared, threads=4, own=own)
    weight = alone.network.tensors()[-2]
    assert_allclose(weight.view(shared.params), weight.view(alone.params), rtol=1e-5, atol=1e-7)
    assert_allclose(weight.view(own[0]), weight.view(alone.slots[0]), rtol=1e-4, atol=1e-9)
    assert not weight.view(shared.slots[0]).any()


def test_it_stops_at_a_raised_fence():
    stopped = case()
    before = stopped.params.copy()
    train(stopped, fence=np.zeros(8, np.int64))
    assert_array_equal(stopped.params, before)
    assert stopped.totals[ROWS] == 0


def test_a_row_that_is_not_finite_is_skipped():
    bad = case()
    bad.inputs.dense[bad.order[0]] = np.inf
    met = int((bad.order == bad.order[0]).sum())
    with np.errstate(invalid="ignore"):  # NumPy warns without the JIT
        train(bad)
    assert bad.totals[SKIPPED] == met and np.isfinite(bad.totals[LOSS])
    assert bad.totals[SKIPPED_ROW] == bad.order[0] + 1
    assert np.isfinite(bad.params).all() and bad.totals[ROWS] == len(bad.order) <= SET
