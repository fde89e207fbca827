"""Batches that overlap read the model when they begin, and write to it when they end."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.kernels.contract import ROWS, TOTALS, UPDATES
from tests.unit.rehearse.conftest import (
    BATCH,
    KINDS,
    CopiedModel,
    batch_rows,
    concurrent,
    given,
    settings,
    tables_of,
)

OPTIMIZERS = "sgd", "momentum", "adagrad", "adam"
# The order in which the batches of threads begin and end: a thread begins, or ends its batch.
TWO = [0, 1, 0, 0, 1, 1, 0, 1]
THREE = [0, 1, 2, 1, 1, 0, 2, 0, 2, 1, 0, 2]


def assert_same_model(one, other):
    """Compare all arrays of two assignments' models."""
    for name in ("params", "first", "second", "steps"):
        assert_array_equal(getattr(one.model, name), getattr(other.model, name), name)


def run(begin, apply, threads, order, arguments):
    """Begin a batch of a thread at its first place in `order`, end it at the next, and so on."""
    in_flight = {}
    for number, thread in enumerate(order):
        if thread in in_flight:
            apply(in_flight.pop(thread))
        else:
            in_flight[thread] = begin(threads[thread], batch_rows(number), *arguments)
    assert not in_flight


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("order", [TWO, THREE], ids=["two", "three"])
def test_overlapping_batches(kind, optimizer, order):
    real, copied = given(kind, optimizer), given(kind, optimizer)
    model, expected = concurrent(real), CopiedModel(copied)
    arguments = settings(real)
    threads, tables = range(max(order) + 1), tables_of(real)
    real_threads = [model.thread(real, t, tables) for t in threads]
    run(model.begin, model.apply, real_threads, order, arguments)

    def apply(changes):
        expected.apply(changes)
        copied.model.steps[0] += 1

    run(expected.begin, apply, [expected.thread(t) for t in threads], order, arguments)
    assert_same_model(real, copied)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_alone_is_a_real_run(kind, optimizer):
    real, plain = given(kind, optimizer), given(kind, optimizer)
    model, loop = concurrent(real, alone=True), CopiedModel(plain)
    thread, state = model.thread(real, 0, tables_of(real)), loop.thread(0)
    arguments, totals = settings(real, threads=1), np.zeros(TOTALS)
    for number in range(4):
        rows = batch_rows(number)
        change = model.begin(thread, rows, *arguments)
        model.apply(change)
        totals[:] = 0
        loop.train(state.model, state, rows, *arguments, totals)
        assert_array_equal(change.totals, totals)
        assert_same_model(real, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_one_thread_that_is_not_alone_computes_nearly_the_same(kind):
    """Adding a difference rounds, so the results are not equal to the bit."""
    real, plain = given(kind), given(kind)
    results = []
    for each, alone in ((real, False), (plain, True)):
        model = concurrent(each, alone=alone)
        thread = model.thread(each, 0, tables_of(each))
        for number in range(8):
            model.apply(model.begin(thread, batch_rows(number), *settings(each)))
        results.append(each.model.params)
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_does_not_change_before_the_end_of_a_batch(kind):
    real = given(kind)
    model = concurrent(real)
    before = [array.copy() for array in (real.model.params, real.model.first, real.model.steps)]
    change = model.begin(model.thread(real, 1, tables_of(real)), batch_rows(0), *settings(real))
    for array, old in zip(
        (real.model.params, real.model.first, real.model.steps), before, strict=True
    ):
        assert_array_equal(array, old)
    assert change.totals[ROWS] == BATCH
    assert change.totals[UPDATES] == 1
    model.apply(change)
    assert (real.model.params != before[0]).any()
    assert real.model.steps[0] == before[2][0] + 1


@pytest.mark.parametrize("kind", KINDS)
def test_layer_by_layer(kind):
    """A batch that begins between two layers of another one reads some layers with its change."""
    real, copied = given(kind), given(kind)
    model, expected = concurrent(real), CopiedModel(copied)
    arguments, views = settings(real), real.network.layer_views()
    tables = tables_of(real)
    threads = [model.thread(real, t, tables) for t in range(3)]
    copies = [expected.thread(t) for t in range(3)]
    first = model.begin(threads[1], batch_rows(0), *arguments)
    same = expected.begin(copies[1], batch_rows(0), *arguments)
    assert first.layers == len(views)
    for layer in reversed(range(first.layers)):
        model.apply(first, layer)
        expected.apply(same, [layer])
        copied.model.steps[0] = 1
        assert_same_model(real, copied)
        between = model.begin(threads[2], batch_rows(1 + layer), *arguments)
        same_between = expected.begin(copies[2], batch_rows(1 + layer), *arguments)
        model.apply(between)
        expected.apply(same_between)
        copied.model.steps[0] = real.model.steps[0]
        assert_same_model(real, copied)
        copied.model.steps[0] = real.model.steps[0] = 1


def test_only_touched_rows_of_a_sparse_layer_change():
    real = given("sparse")
    model = concurrent(real)
    train, view = real.train, real.network.layer_views()[0]
    rows = batch_rows(0, 2)
    before = real.model.params.copy()
    change = model.begin(model.thread(real, 1), rows, *settings(real))
    model.apply(change)
    inputs = train.inputs
    features = np.concatenate(
        [inputs.indices[inputs.indptr[row] : inputs.indptr[row + 1]] for row in rows]
    )
    cells = slice(view.weights, view.weights + view.fan_in * view.fan_out)
    changed = (real.model.params != before)[cells].reshape(view.fan_in, view.fan_out).any(axis=1)
    assert set(np.flatnonzero(changed)) == set(features)
    assert change.stored == len(features)
    assert len(set(features)) < train.features


@pytest.mark.parametrize("kind", KINDS)
def test_what_others_write_is_read_and_kept(kind):
    """A replica's merge, or a roll-back, between the begin and the end of a batch."""
    real, copied = given(kind), given(kind)
    model, expected = concurrent(real), CopiedModel(copied)
    arguments = settings(real)
    thread, copy = model.thread(real, 1, tables_of(real)), expected.thread(1)
    for number in range(3):
        change = model.begin(thread, batch_rows(number), *arguments)
        same = expected.begin(copy, batch_rows(number), *arguments)
        for each in (real, copied):
            random = np.random.default_rng(number)
            each.model.params[:] += random.normal(size=each.model.params.shape)
            each.model.first[:] += random.random(each.model.first.shape)
        model.apply(change)
        expected.apply(same)
        copied.model.steps[0] += 1
        assert_same_model(real, copied)


def test_a_reset_thread_takes_over_the_shared_slots():
    real = given("dense")
    model = concurrent(real)
    thread = model.thread(real, 1)
    model.apply(model.begin(thread, batch_rows(0), *settings(real)))
    assert (thread.state.model.own_first != real.model.first).any()
    thread.reset()
    tensor = real.network.tensors()[2]
    assert_array_equal(tensor.view(thread.state.model.own_first), tensor.view(real.model.first))


def test_a_revoked_batch_changes_nothing():
    real = given("sparse")
    model = concurrent(real)
    before = real.model.params.copy()
    real.fence[0] = 1
    change = model.begin(model.thread(real, 1), batch_rows(0), *settings(real))
    model.apply(change)
    assert change.totals[ROWS] == 0
    assert real.model.steps[0] == 0
    assert_array_equal(real.model.params, before)


def test_hash_tables_learn_of_changed_outputs_when_the_batch_ends():
    real = given("hashed")
    model, tables = concurrent(real), tables_of(real)
    thread = model.thread(real, 1, tables)
    marks = tables.thread(thread.state, BATCH).changed
    change = model.begin(thread, batch_rows(0), *settings(real))
    assert not marks.any()
    assert change.active > 0
    weight = real.network.tensors()[-2]
    before = weight.view(real.model.params).copy()
    model.apply(change)
    changed = (weight.view(real.model.params) != before).any(axis=1)
    assert 0 < changed.sum() <= change.active < len(changed)
    assert_array_equal(marks.astype(bool) | changed, marks.astype(bool))
    assert marks.sum() == change.active


def test_a_thread_looks_up_outputs_in_the_set_that_it_is_pinned_to(monkeypatch):
    real, used = given("hashed"), []
    model, tables = concurrent(real), tables_of(real)
    finder = tables.finder
    monkeypatch.setattr(tables, "finder", lambda number: used.append(number) or finder(number))
    thread = model.thread(real, 1, tables)
    for thread.pinned in (None, 0, 1):
        model.apply(model.begin(thread, batch_rows(0), *settings(real)))
    assert used == [tables.current, 0, 1] == [1, 0, 1]
