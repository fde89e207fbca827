"""Batches that overlap: each stage reads and writes the model when it runs."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.kernels.contract import ROWS, TOTALS
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.network import read
from hogbatch.simulate.rehearsal.concurrent_model import StagedBatch
from hogbatch.workers.compute.thread_state import thread_state
from tests.support.pairs import pairs
from tests.unit.simulate.rehearsal.conftest import (
    BATCH,
    KINDS,
    OF_TEAMS,
    batch_rows,
    concurrent,
    given,
    settings,
    tables_of,
)

OPTIMIZERS = "sgd", "momentum", "adagrad", "adam"
# The order in which the batches of threads run: a thread begins, or continues, its batch.
ORDER = [0, 1, 2, 1, 1, 0, 2, 0, 2, 1, 0, 2]


def assert_same_model(one, other):
    """Compare all arrays of two assignments' models."""
    for name in ("params", "first", "second", "steps"):
        assert_array_equal(getattr(one.model, name), getattr(other.model, name), name)


class PlainBatch:
    """A batch of the staged kernels; only the model is shared with other batches.

    With `delayed`, all layers are read in the first stage, and updated in the others.
    """

    def __init__(self, given, state, tables, delayed, rows, lease, hyper):
        layers, train = given.network.layer_views(), given.train
        below = given.network.placed_backbone()
        loop = loop_for(layers, sparse=train.sparse, hashed=tables is not None, backbone=below)
        self.loop, self.shared, self.delayed = loop, given.model, delayed
        self.layers, self.done, self.totals = len(layers), 0, np.zeros(TOTALS)
        self.stages = 1 + self.layers if delayed else loop.stages
        self.state = (
            state.model._replace(steps=given.model.steps.copy()) if delayed else state.model
        )
        model, own = (self.state,), state.head
        if tables is not None:
            model = self.state, tables.finder(tables.current)
            own = tables.thread(state, lease.batch_size)
        data = train.inputs, train.labels, rows
        space = loop.open_batches(*model, *data, len(rows), own)
        self.arguments = *model, *data, lease, hyper, space, self.totals

    def run(self, stop):
        for stage in range(self.done, stop):
            if not self.delayed:
                self.loop.run_stages(*self.arguments, stage, stage + 1, True)
            elif stage == 0:
                self.state.steps[:] = self.shared.steps
                read(*self.arguments)
            else:
                self.shared.steps[0] += stage == 1
                first = self.layers + stage - 1
                self.loop.run_stages(*self.arguments, first, first + 1, False)
        self.done = stop


def run(new_batch, threads, arguments):
    """Begin a batch of a thread at its first place in ORDER, run half of the remaining stages at
    each of the next places, and so on; at the end, end all batches."""
    in_flight = {}
    for number, thread in enumerate(ORDER):
        if thread not in in_flight:
            in_flight[thread] = new_batch(threads[thread], batch_rows(number), *arguments)
        batch = in_flight[thread]
        batch.run(batch.done + max(1, (batch.stages - batch.done) // 2))
        if batch.done == batch.stages:
            del in_flight[thread]
    for batch in in_flight.values():
        batch.run(batch.stages)


@pairs(kind=[*KINDS, "backbone"], optimizer=OPTIMIZERS)
def test_overlapping_batches(kind, optimizer):
    compare_overlapping_batches(kind, optimizer, team=False)


@pairs(kind=OF_TEAMS, optimizer=OPTIMIZERS)
def test_overlapping_batches_of_teams(kind, optimizer):
    compare_overlapping_batches(kind, optimizer, team=True)


def compare_overlapping_batches(kind, optimizer, *, team):
    real, plain = given(kind, optimizer), given(kind, optimizer)
    model, arguments = concurrent(real), settings(real)
    numbers, tables, others = range(max(ORDER) + 1), tables_of(real), tables_of(plain)
    threads = [model.thread(real, number, tables, team=team) for number in numbers]
    run(partial(StagedBatch, model), threads, arguments)
    states = [thread_state(plain, number) for number in numbers]
    run(
        lambda state, *rest: PlainBatch(plain, state, others, team, *rest),
        *(states, arguments),
    )
    assert_same_model(real, plain)


@pairs(kind=[*KINDS, "backbone"], optimizer=OPTIMIZERS, alone=[True, False])
def test_a_batch_that_no_other_one_overlaps_is_that_of_a_real_run(kind, optimizer, alone):
    real, plain = given(kind, optimizer), given(kind, optimizer)
    model, tables = concurrent(real, alone=alone), tables_of(plain)
    thread, state = model.thread(real, 0, tables_of(real)), thread_state(plain, 0)
    before, own = (state.model,), state.head
    if tables is not None:
        before, own = (*before, tables.finder(tables.current)), tables.thread(state, BATCH)
    arguments, totals = settings(real, threads=1), np.zeros(TOTALS)
    for number in range(4):
        rows = batch_rows(number)
        batch = StagedBatch(model, thread, rows, *arguments)
        for stop in range(1, batch.stages + 1) if number % 2 else [batch.stages]:
            batch.run(stop)
        totals[:] = 0
        data = plain.train.inputs, plain.train.labels, rows
        model.loop.train(*before, *data, *arguments, own, plain.fence, totals)
        assert_array_equal(batch.totals, totals)
        assert_same_model(real, plain)


def test_a_reset_thread_takes_over_the_shared_slots():
    real = given("dense")
    model = concurrent(real)
    thread = model.thread(real, 1)
    batch = StagedBatch(model, thread, batch_rows(0), *settings(real))
    batch.run(batch.stages)
    assert (thread.state.model.own_first != real.model.first).any()
    thread.reset()
    tensor = real.network.tensors()[2]
    assert_array_equal(tensor.view(thread.state.model.own_first), tensor.view(real.model.first))


@pytest.mark.parametrize(("team", "stops"), [(False, [2, 4, 6]), (True, [6])])
def test_a_revoked_batch_changes_nothing(team, stops):
    real = given("sparse")
    model = concurrent(real)
    before = real.model.params.copy()
    real.fence[0] = 1
    batch = StagedBatch(model, model.thread(real, 1, team=team), batch_rows(0), *settings(real))
    for stop in stops:
        batch.run(min(stop, batch.stages))
    assert batch.totals[ROWS] == 0
    assert real.model.steps[0] == 0
    assert_array_equal(real.model.params, before)


def test_hash_tables_learn_of_changed_outputs_when_they_are_updated():
    real = given("hashed")
    model, tables = concurrent(real), tables_of(real)
    thread = model.thread(real, 1, tables)
    marks = tables.thread(thread.state, BATCH).changed
    batch = StagedBatch(model, thread, batch_rows(0), *settings(real))
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
        batch = StagedBatch(model, thread, batch_rows(0), *settings(real))
        batch.run(batch.stages)
    assert used == [tables.current, 0, 1] == [1, 0, 1]
