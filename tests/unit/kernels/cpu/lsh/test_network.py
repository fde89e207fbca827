"""The training step on active neurons only, compared with the reference on all or these neurons."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import multi_labels
from hogbatch.kernels.contract import ACTIVE, LOSS, ROWS, SKIPPED, SKIPPED_ROW, UPDATES
from hogbatch.kernels.cpu import exact
from hogbatch.kernels.cpu.lsh import network as hashed
from hogbatch.kernels.cpu.lsh.functions import FAMILIES
from hogbatch.kernels.cpu.lsh.selection import SelectionRule
from hogbatch.kernels.dropout import Dropout
from tests.support.kernel_cases import FORMS
from tests.support.pairs import pairs
from tests.support.stored import to_stored
from tests.support.wide_networks import (
    BATCH,
    CLASSES,
    HIDDEN,
    RAGGED,
    WIDE_LOSSES,
    HashedCase,
    finder_of,
)

every_kind = pairs(optimizer=list(OPTIMIZERS), loss=WIDE_LOSSES, sparse=FORMS, hidden=HIDDEN)
forms = pytest.mark.parametrize("sparse", FORMS.values(), ids=FORMS)
FOUND = np.array([2, 3, 17, 31, 42])


def outputs(tensors):
    """The names of the last layer's tensors, and of the others."""
    last = max(name.split(".")[1] for name in tensors)
    own = {name for name in tensors if name.split(".")[1] == last}
    return own, tensors.keys() - own


def check_same(ours, theirs):
    for name, tensor in ours.items():
        check_close(name, tensor, theirs[name])


def check_close(name, ours, theirs):
    """Slots are sums of gradients, or of their squares: small."""
    assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5 if "params" in name else 1e-8, err_msg=name)


@every_kind
def test_with_all_neurons_active_the_step_equals_the_dense_step(optimizer, loss, sparse, hidden):
    ours, theirs = (HashedCase(loss, optimizer, sparse=sparse, hidden=hidden) for _ in range(2))
    start = ours.tensors()
    ours.train(), theirs.interpret()
    check_same(ours.tensors(), theirs.tensors())
    for name, tensor in theirs.tensors().items():
        least = 1e-4 if "params" in name else 0
        assert np.abs(tensor - start[name]).max() > least, f"{name} did not train"
    assert_allclose(np.delete(ours.totals, ACTIVE), np.delete(theirs.totals, ACTIVE), rtol=1e-5)
    assert ours.totals[ACTIVE] == 3 * CLASSES and ours.totals[UPDATES] == ours.steps[0] == 3
    assert ours.changed.all()
    for flat in (ours.params, *ours.slots):  # padding stays zero
        packed = np.zeros_like(flat)
        if flat.size:
            to_stored(ours.network, ours.network.from_stored(flat), packed)
        assert_array_equal(packed, flat)


@pytest.mark.no_own_indices
@forms
def test_dropout_equals_that_of_the_dense_step(sparse):
    given = {"sparse": sparse, "hidden": (20, 33), "dropout": Dropout(0.4, 5)}
    ours, theirs, plain = (HashedCase(**each) for each in (given, given, given | {"dropout": None}))
    ours.train(), theirs.interpret(), plain.interpret()
    check_same(ours.tensors(), theirs.tensors())
    assert np.abs(theirs.params - plain.params).max() > 1e-3


@every_kind
def test_inactive_neurons_are_unchanged_and_do_not_matter(optimizer, loss, sparse, hidden):
    case = HashedCase(loss, optimizer, sparse=sparse, hidden=hidden)
    case.order = np.arange(1, 1 + BATCH)  # one batch; row 0 has no labels, the last has all
    if len(case.labels.indptr):  # otherwise nearly all would be active
        case.labels = first_labels(case.labels, 2)
    for slot in case.slots:  # as after earlier training
        slot[:] = np.random.default_rng(1).random(slot.size) / 8
    active = np.union1d(FOUND, case.labels_of(case.order))
    small, before = case.cut(active), case.tensors()
    case.train(finder_of(hidden[-1], CLASSES, found=FOUND)), small.interpret()
    after, expected = case.tensors(), small.tensors()
    output_major, below = outputs(after)
    check_same({name: after[name] for name in below}, {name: expected[name] for name in below})
    others = np.setdiff1d(np.arange(CLASSES), active)
    assert len(others) > 10 and case.totals[ACTIVE] == len(active)
    for name in output_major:
        check_close(name, after[name][active], expected[name])
        assert_array_equal(after[name][others], before[name][others], err_msg=name)
    assert_allclose(case.totals[LOSS], small.totals[LOSS], rtol=1e-5)
    assert_array_equal(np.flatnonzero(case.changed), active)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_an_outlier_is_bounded_as_in_the_dense_step(optimizer):
    ours, theirs = (HashedCase(optimizer=optimizer, hidden=(20, 33)) for _ in range(2))
    for case in (ours, theirs):
        case.order = case.order[:BATCH]
        case.inputs.dense[case.order[2]] *= 100
        case.hyper = case.hyper._replace(l2=0.0)
    start = ours.tensors()
    ours.train(), theirs.interpret()
    for name, tensor in theirs.tensors().items():
        moved = np.abs(tensor - start[name]).max()
        assert_allclose(ours.tensors()[name], tensor, rtol=1e-3, atol=1e-4 * moved, err_msg=name)


def first_labels(labels, most):
    """At most `most` labels per row, from the middle of its list."""
    lists = [
        labels.indices[start:stop][(stop - start) // 2 :][:most]
        for start, stop in zip(labels.indptr[:-1], labels.indptr[1:], strict=True)
    ]
    indptr = np.concatenate(([0], np.cumsum([len(each) for each in lists])))
    return multi_labels(indptr.astype(np.int64), np.concatenate(lists))


def test_threads_share_output_slots_and_have_their_own_slots_of_dense_layers():
    case = HashedCase(optimizer="adagrad", hidden=(20, 33))
    own = tuple(np.zeros_like(slot) for slot in case.slots)
    alone = HashedCase(optimizer="adagrad", hidden=(20, 33))
    alone.order = case.order = case.order[:BATCH]
    alone.train(), case.train(threads=4, own=own)
    kept, shared = (case.network.from_stored(flat) for flat in (own[0], case.slots[0]))
    for name, slot in case.network.from_stored(alone.slots[0]).items():
        mine, others = (shared, kept) if name.startswith("layers.2") else (kept, shared)
        assert_allclose(mine[name], slot, rtol=1e-5, atol=1e-8)
        assert slot.any() and not others[name].any()
    for name, stepped in case.tensors().items():  # only dense layers have another rate
        same = np.allclose(stepped, alone.tensors()[name], atol=1e-6)
        assert same == name.startswith("params layers.2") or name.startswith("first")


@forms
def test_a_fence_raised_during_a_lease_stops_it_between_two_batches(sparse):
    case, first = HashedCase(sparse=sparse), HashedCase(sparse=sparse)
    case.steps[0] = 5  # FENCE: the count of updates is the fence that the first of them raises
    case.train(fence=case.steps)
    first.order = first.order[:BATCH]
    first.train()
    assert case.totals[ROWS] == BATCH and case.totals[UPDATES] == 1
    assert_array_equal(case.params, first.params)


@pairs(family=FAMILIES, poison=[np.nan, np.inf, 3e38], loss=WIDE_LOSSES)
def test_rows_that_are_not_finite_are_counted_and_leave_the_model_finite(loss, poison, family):
    case, bad = HashedCase(loss, "momentum", hidden=(20, 33)), 3
    case.inputs.dense[bad, ::2] = poison
    case.order[5] = bad
    case.train(finder_of(33, CLASSES, SelectionRule(5, 9, 3), family=family))
    assert case.totals[SKIPPED] == np.count_nonzero(case.order == bad)
    assert case.totals[SKIPPED_ROW] == bad + 1
    assert case.totals[ROWS] == len(case.order)
    assert case.is_finite()


@pytest.mark.parametrize("loss", ["multilabel-softmax", "multilabel"])
def test_a_batch_without_active_neurons_changes_nothing(loss):
    case = HashedCase(loss)
    case.order[:] = 0  # has no labels
    case.hyper = case.hyper._replace(l2=0.0)
    before = case.params.copy()
    case.train(finder_of(18, CLASSES, found=()))
    assert_array_equal(case.params, before)
    assert case.totals[ROWS] == len(case.order) and case.totals[UPDATES] == 3
    assert case.totals[LOSS] == case.totals[SKIPPED] == case.totals[ACTIVE] == 0


@pytest.mark.parametrize("batch", [1, BATCH, 64, 10_000])
def test_any_batch_size_covers_every_row(batch):
    case = HashedCase().train(batch=batch)
    assert case.totals[ROWS] == len(case.order) == 2 * BATCH + RAGGED
    assert case.totals[UPDATES] == -(-len(case.order) // batch)


def test_each_kernel_is_compiled_once_for_all_settings():
    for sparse in (False, True):
        for optimizer in OPTIMIZERS:
            HashedCase(optimizer=optimizer, sparse=sparse).train()
    for family in FAMILIES.values():
        HashedCase().train(finder_of(18, CLASSES, SelectionRule(4, 9, 2), family=family)).evaluate()
    for loop in (hashed.train, exact.evaluate):
        without = [each for each in loop.for_python.signatures if "Dropout" not in str(each)]
        assert len(without) == 1  # other tests may have compiled the version with dropout
