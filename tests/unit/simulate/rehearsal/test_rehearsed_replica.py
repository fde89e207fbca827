"""A rehearsed replica exchanges what a real one does (hogbatch.workers.replica, on NumPy)."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import LOSS, ROWS
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.simulate.rehearsal.replica import RehearsedReplica
from hogbatch.wire.messages import Lease
from hogbatch.workers.trainer import Trainer
from tests.support.assignments import assignment, examples
from tests.support.pairs import pairs
from tests.unit.simulate.rehearsal.conftest import (
    KINDS,
    ROWS as TRAINING_ROWS,
    concurrent,
    given,
    settings,
    tables_of,
)

EVERY_OPTIMIZER = "sgd", "momentum", "adagrad", "adam"
INTERVALS = [np.arange(start, start + 8) for start in (0, 8, 16, 24, 32, 40)]
WEIGHTS = 1.0, 0.5, 0.25, 1.0, 0.7, 0.3


def with_merge(given, merge):
    """The assignment with another merge rule."""
    return replace(given, welcome=msgspec.structs.replace(given.welcome, merge=merge))


def sparse(optimizer):
    """An assignment whose batches touch few of its features."""
    train = examples(TRAINING_ROWS, sparse=True, features=60, stored=0.03)
    return assignment(train, hidden=(8,), optimizer=optimizer)


class RealReplica:
    """hogbatch.workers.replica.Replica with the calls of a RehearsedReplica."""

    def __init__(self, given, *, by_rows):
        self._trainer = Trainer(HostDevice(), given)
        self.replica = self._trainer.replica
        if by_rows:
            assert self._trainer.exchange_touched_rows()
        else:
            self.replica.exchange_all()
        self._trainer.follow(-1)  # rows in the order of the set
        self.replica.reset()

    def __getattr__(self, name):
        return getattr(self.replica, name)

    def train(self, rows, batch, rate):
        self._trainer.train(rows[0], rows[-1] + 1, batch, rate)

    def take(self, upcoming):
        self.replica.rejoin(upcoming)
        self.replica.take()
        return bool(self.replica.finite[0])


def exchange_all_intervals(replica, model, reset_after=()):
    """Train the intervals as a worker does, while others change the model; return the losses."""
    losses = []
    replica.begin(INTERVALS[0])
    for number, rows in enumerate(INTERVALS):
        replica.train(rows, 3, 0.05)
        model.params[:] += np.random.default_rng(number).normal(size=model.params.shape) / 100
        last = number == len(INTERVALS) - 1
        upcoming = None if last or number in reset_after else INTERVALS[number + 1]
        assert replica.take(upcoming)
        losses.append(replica.taken_totals[LOSS])
        model.params[:] += np.random.default_rng(9 + number).normal(size=model.params.shape) / 100
        replica.merge(WEIGHTS[number])
        replica.fetch()
        if upcoming is None and not last:
            replica.reset()
            replica.begin(INTERVALS[number + 1])
    return losses


@pairs(
    optimizer=EVERY_OPTIMIZER,
    kind=["dense", "sparse", "linear", "wide"],
    merge=["delta", "overwrite", "average"],
)
def test_all_parameters_are_exchanged_as_by_a_real_replica(kind, optimizer, merge):
    real, rehearsed = (with_merge(given(kind, optimizer), merge) for _ in range(2))
    expected = exchange_all_intervals(RealReplica(real, by_rows=False), real.model, {2})
    replica = RehearsedReplica(rehearsed, by_rows=False)
    assert_allclose(exchange_all_intervals(replica, rehearsed.model, {2}), expected, rtol=1e-4)
    assert_allclose(rehearsed.model.params, real.model.params, rtol=1e-3, atol=1e-4)
    assert_allclose(rehearsed.model.first, real.model.first, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("by_rows", [False, True])
def test_changes_are_damped_by_weights_as_by_a_real_replica(by_rows):
    models = []
    for make in (RealReplica, RehearsedReplica):
        for damping in ("off", "per-weight"):
            made = sparse("adagrad")
            welcome = msgspec.structs.replace(made.welcome, staleness_damping=damping)
            made = replace(made, welcome=welcome)
            replica = make(made, by_rows=by_rows)
            assert replica.damps_weights == (damping == "per-weight" and not by_rows)
            exchange_all_intervals(replica, made.model, {2})
            models.append(made.model.params)
    plain, damped, _, rehearsed = models
    assert_allclose(rehearsed, damped, rtol=1e-3, atol=1e-4)
    assert (abs(damped - plain).max() > 0.01) == (not by_rows)


@pytest.mark.parametrize("optimizer", EVERY_OPTIMIZER)
def test_touched_rows_are_exchanged_as_by_a_real_replica(optimizer):
    real, rehearsed = sparse(optimizer), sparse(optimizer)
    expected = exchange_all_intervals(RealReplica(real, by_rows=True), real.model, {1, 3})
    replica = RehearsedReplica(rehearsed, by_rows=True)
    assert_allclose(exchange_all_intervals(replica, rehearsed.model, {1, 3}), expected, rtol=1e-4)
    assert_allclose(rehearsed.model.params, real.model.params, rtol=1e-3, atol=1e-4)
    assert_allclose(rehearsed.model.first, real.model.first, rtol=1e-3, atol=1e-5)
    assert (real.model.first > 0).any() == (optimizer == "adagrad")


def test_the_number_of_touched_rows():
    given = sparse("adagrad")
    inputs = given.train.inputs
    replica = RehearsedReplica(given, by_rows=True)
    counts = []
    replica.begin(INTERVALS[0])
    for upcoming in INTERVALS[1:]:
        counts.append(replica.touched)
        replica.take(upcoming)
    assert counts == [
        len(set(inputs.indices[inputs.indptr[rows[0]] : inputs.indptr[rows[-1] + 1]]))
        for rows in INTERVALS[:-1]
    ]
    whole = RehearsedReplica(given, by_rows=False)
    whole.begin(INTERVALS[0])
    assert whole.touched is None


def test_no_change_is_lost_or_added_twice():
    """In numbers that float32 adds exactly, as in tests/unit/workers/test_replica.py."""
    given = sparse("sgd")
    for by_rows in (False, True):
        given.model.params[:] = 0
        replica = RehearsedReplica(given, by_rows=by_rows)
        every_row = np.arange(TRAINING_ROWS)
        replica.begin(every_row)
        reached = np.zeros_like(replica.params)
        cells = replica.params.shape[0]
        for n in range(5):
            replica.params[:] += 2.0**n
            given.model.params[:] += 1000 * n
            assert replica.take(every_row)
            replica.merge(1.0)
            replica.fetch()
        reached[:] = given.model.params - 1000 * sum(range(5))
        changed = set(np.unique(reached))
        assert changed <= {0.0, sum(2.0**n for n in range(5))}, cells
        assert max(changed) == 31


@pairs(by_rows=[False, True], bad=[np.nan, np.inf, -np.inf], cell=["weight", "bias"])
def test_a_change_that_is_not_finite_is_noticed(by_rows, bad, cell):
    given = sparse("adagrad")
    inputs, view = given.train.inputs, given.network.layer_views()[0]
    replica = RehearsedReplica(given, by_rows=by_rows)
    replica.begin(INTERVALS[0])
    weight = int(inputs.indices[0]) * view.fan_out
    replica.params[weight if cell == "weight" else view.bias] = bad
    assert not replica.take(INTERVALS[1])
    replica.reset()
    replica.begin(INTERVALS[1])
    assert replica.take(None)
    assert np.isfinite(given.model.params).all()


def test_a_reset_reloads_the_slots_and_the_steps():
    given_one = given("dense", "adam")
    given_one.model.steps[0] = 7
    replica = RehearsedReplica(given_one, by_rows=False)
    assert replica.steps[0] == 7
    replica.begin(INTERVALS[0])
    replica.train(INTERVALS[0], 3, 0.1)
    assert replica.steps[0] == 7 + 3
    assert (replica.slots[0] != given_one.model.first).any()
    replica.reset()
    assert replica.steps[0] == 7
    assert_array_equal(replica.slots[0], given_one.model.first)
    assert_array_equal(replica.slots[1], given_one.model.second)
    assert not replica.totals.any()


@pytest.mark.parametrize("kind", KINDS)
def test_threads_read_what_a_replica_has_merged(kind):
    one = given(kind)
    model, tables = concurrent(one), tables_of(one)
    replica = RehearsedReplica(one, by_rows=False)
    replica.begin(INTERVALS[0])
    batch = model.batch(model.thread(one, 1, tables), INTERVALS[3][:4], *settings(one))
    batch.run(batch.stages)
    replica.train(INTERVALS[0], 4, 0.1)
    replica.take(None)
    before = one.model.params.copy()
    replica.merge(1.0)
    assert (one.model.params != before).any()
    new = concurrent(one)  # has read nothing before the merge
    losses = []
    for each in (model, new):
        thread = each.thread(one, 2, tables_of(one))
        batch = each.batch(thread, INTERVALS[4][:4], *settings(one))
        batch.run(1)
        batch.run(batch.stages // 2)
        losses.append(batch.totals[LOSS])
    assert losses[0] == losses[1]


def test_evaluation_reads_the_shared_parameters():
    train, test = examples(40), examples(30, seed=1)
    one = assignment(train, test)
    replica = RehearsedReplica(one, by_rows=False)
    before = replica.evaluate(Lease(0, "evaluate", 0, 0, 30, 8, 0.0, 0))
    one.model.params[:] *= 2
    after = replica.evaluate(Lease(0, "evaluate", 0, 0, 30, 8, 0.0, 0))
    assert before[ROWS] == after[ROWS] == 30
    assert before[LOSS] != after[LOSS]
    whole = replica.evaluate(Lease(0, "evaluate", 0, 0, 30, 30, 0.0, 0))
    assert_allclose(whole, after, rtol=1e-5)
