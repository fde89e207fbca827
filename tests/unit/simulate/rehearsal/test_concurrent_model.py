"""Batches that overlap: each stage reads and writes the model when it runs."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.kernels.contract import ROWS, TOTALS, UPDATES
from tests.support.pairs import pairs
from tests.unit.simulate.rehearsal.conftest import (
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
INTERLEAVE = "layer", "batch"
# The order in which the batches of threads run: a thread begins, or continues, its batch.
TWO = [0, 1, 0, 0, 1, 1, 0, 1]
THREE = [0, 1, 2, 1, 1, 0, 2, 0, 2, 1, 0, 2]


def assert_same_model(one, other):
    """Compare all arrays of two assignments' models."""
    for name in ("params", "first", "second", "steps"):
        assert_array_equal(getattr(one.model, name), getattr(other.model, name), name)


class DelayedCopy:
    """A batch of a CopiedModel that is read at once; its layers are written later."""

    def __init__(self, batch):
        self.batch, self.done, self.stages = batch, 0, 1 + batch.stages // 2

    def run(self, stop):
        for stage in range(self.done, stop):
            if stage == 0:
                self.batch.read()
            else:
                self.batch.write(stage - 1)
        self.done = stop


def run(new_batch, threads, order, arguments):
    """Begin a batch of a thread at its first place in `order`, run half of the remaining stages at
    each of the next places, and so on; at the end, end all batches."""
    in_flight = {}
    for number, thread in enumerate(order):
        if thread not in in_flight:
            in_flight[thread] = new_batch(threads[thread], batch_rows(number), *arguments)
        batch = in_flight[thread]
        batch.run(batch.done + max(1, (batch.stages - batch.done) // 2))
        if batch.done == batch.stages:
            del in_flight[thread]
    for batch in in_flight.values():
        batch.run(batch.stages)


@pairs(
    kind=KINDS,
    optimizer=OPTIMIZERS,
    order={"two": TWO, "three": THREE},
    way={"layer": ("layer", False), "batch": ("batch", False), "team": ("layer", True)},
)
def test_overlapping_batches(kind, optimizer, order, way):
    interleave, team = way
    real, copied = given(kind, optimizer), given(kind, optimizer)
    model, expected = concurrent(real, interleave=interleave), CopiedModel(copied)
    arguments = settings(real)
    threads, tables = range(max(order) + 1), tables_of(real)
    real_threads = [model.thread(real, t, tables, team=team) for t in threads]
    run(model.batch, real_threads, order, arguments)

    def new_batch(*given):
        batch = expected.batch(*given)
        return DelayedCopy(batch) if team or interleave == "batch" else batch

    run(new_batch, [expected.thread(t) for t in threads], order, arguments)
    assert_same_model(real, copied)


@pairs(kind=KINDS, optimizer=OPTIMIZERS, alone=[True, False])
def test_a_batch_that_no_other_one_overlaps_is_that_of_a_real_run(kind, optimizer, alone):
    real, plain = given(kind, optimizer), given(kind, optimizer)
    model, loop = concurrent(real, alone=alone), CopiedModel(plain)
    thread, state = model.thread(real, 0, tables_of(real)), loop.thread(0)
    arguments, totals = settings(real, threads=1), np.zeros(TOTALS)
    for number in range(4):
        rows = batch_rows(number)
        batch = model.batch(thread, rows, *arguments)
        for stop in range(1, batch.stages + 1) if number % 2 else [batch.stages]:
            batch.run(stop)
        totals[:] = 0
        loop.train(state.model, state, rows, *arguments, totals)
        assert_array_equal(batch.totals, totals)
        assert_same_model(real, plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interleave", INTERLEAVE)
def test_the_model_does_not_change_before_the_second_half_of_a_batch(kind, interleave):
    real = given(kind)
    model = concurrent(real, interleave=interleave)
    before = [array.copy() for array in (real.model.params, real.model.first)]
    thread = model.thread(real, 1, tables_of(real))
    batch = model.batch(thread, batch_rows(0), *settings(real))
    batch.run(batch.stages // 2 if interleave == "layer" else 1)
    for array, old in zip((real.model.params, real.model.first), before, strict=True):
        assert_array_equal(array, old)
    assert real.model.steps[0] == (interleave == "layer")
    assert batch.totals[ROWS] == BATCH
    assert batch.totals[UPDATES] == 1
    batch.run(batch.stages)
    assert (real.model.params != before[0]).any()
    assert real.model.steps[0] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_backward_passes_update_the_layers_last_to_first(kind):
    real = given(kind)
    model, views = concurrent(real), real.network.layer_views()
    batch = model.batch(model.thread(real, 1, tables_of(real)), batch_rows(0), *settings(real))
    assert batch.stages == 2 * len(views)
    batch.run(len(views))
    for layer in reversed(range(len(views))):
        before = real.model.params.copy()
        batch.run(batch.done + 1)
        changed = np.flatnonzero(real.model.params != before)
        stops = [view.weights for view in views[layer + 1 :]] + [len(before)]
        assert len(changed) > 0
        assert views[layer].weights <= changed.min() and changed.max() < stops[0]


def test_only_touched_rows_of_a_sparse_layer_change():
    real = given("sparse")
    model = concurrent(real)
    train, view = real.train, real.network.layer_views()[0]
    rows = batch_rows(0, 2)
    before = real.model.params.copy()
    batch = model.batch(model.thread(real, 1), rows, *settings(real))
    batch.run(1)
    batch.run(batch.stages)
    inputs = train.inputs
    features = np.concatenate(
        [inputs.indices[inputs.indptr[row] : inputs.indptr[row + 1]] for row in rows]
    )
    cells = slice(view.weights, view.weights + view.fan_in * view.fan_out)
    changed = (real.model.params != before)[cells].reshape(view.fan_in, view.fan_out).any(axis=1)
    assert set(np.flatnonzero(changed)) == set(features)
    assert batch.stored == len(features)
    assert len(set(features)) < train.features


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interleave", INTERLEAVE)
def test_what_others_write_is_read_and_kept(kind, interleave):
    """A replica's merge, or a roll-back, between the begin and the end of a batch."""
    real, copied = given(kind), given(kind)
    model, expected = concurrent(real, interleave=interleave), CopiedModel(copied)
    arguments = settings(real)
    thread, copy = model.thread(real, 1, tables_of(real)), expected.thread(1)
    for number in range(3):
        batch = model.batch(thread, batch_rows(number), *arguments)
        same = expected.batch(copy, batch_rows(number), *arguments)
        if interleave == "batch":
            same = DelayedCopy(same)
        for stop in (batch.stages // 2, batch.stages):
            batch.run(stop)
            same.run(stop)
            for each in (real, copied):
                random = np.random.default_rng(number)
                each.model.params[:] += random.normal(size=each.model.params.shape)
                each.model.first[:] += random.random(each.model.first.shape)
        assert_same_model(real, copied)


def test_a_reset_thread_takes_over_the_shared_slots():
    real = given("dense")
    model = concurrent(real)
    thread = model.thread(real, 1)
    batch = model.batch(thread, batch_rows(0), *settings(real))
    batch.run(batch.stages)
    assert (thread.state.model.own_first != real.model.first).any()
    thread.reset()
    tensor = real.network.tensors()[2]
    assert_array_equal(tensor.view(thread.state.model.own_first), tensor.view(real.model.first))


@pytest.mark.parametrize("stops", [[2, 4, 6], [6]])
@pytest.mark.parametrize("interleave", INTERLEAVE)
def test_a_revoked_batch_changes_nothing(interleave, stops):
    real = given("sparse")
    model = concurrent(real, interleave=interleave)
    before = real.model.params.copy()
    real.fence[0] = 1
    batch = model.batch(model.thread(real, 1), batch_rows(0), *settings(real))
    for stop in stops:
        batch.run(min(stop, batch.stages))
    assert batch.totals[ROWS] == 0
    assert real.model.steps[0] == 0
    assert_array_equal(real.model.params, before)


@pytest.mark.parametrize("interleave", INTERLEAVE)
def test_hash_tables_learn_of_changed_outputs_when_they_are_updated(interleave):
    real = given("hashed")
    model, tables = concurrent(real, interleave=interleave), tables_of(real)
    thread = model.thread(real, 1, tables)
    marks = tables.thread(thread.state, BATCH).changed
    batch = model.batch(thread, batch_rows(0), *settings(real))
    assert batch.active == 0
    batch.run(batch.stages // 2)
    assert not marks.any()
    assert batch.active > 0
    weight = real.network.tensors()[-2]
    before = weight.view(real.model.params).copy()
    batch.run(batch.stages)
    changed = (weight.view(real.model.params) != before).any(axis=1)
    assert 0 < changed.sum() <= batch.active < len(changed)
    assert_array_equal(marks.astype(bool) | changed, marks.astype(bool))
    assert marks.sum() == batch.active


def test_a_thread_looks_up_outputs_in_the_set_that_it_is_pinned_to(monkeypatch):
    real, used = given("hashed"), []
    model, tables = concurrent(real), tables_of(real)
    finder = tables.finder
    monkeypatch.setattr(tables, "finder", lambda number: used.append(number) or finder(number))
    thread = model.thread(real, 1, tables)
    for thread.pinned in (None, 0, 1):
        batch = model.batch(thread, batch_rows(0), *settings(real))
        batch.run(batch.stages)
    assert used == [tables.current, 0, 1] == [1, 0, 1]
