"""Steps, evaluation and measurement on a device, without a coordinator."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.augmentation import Augmentation
from hogbatch.kernels.contract import LOSS, METRIC_SUMS, TOTALS
from hogbatch.kernels.dropout import key_of
from hogbatch.kernels.executor import Executor, Randomness
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.policy.limits import largest_gpu_batch, useful_limits
from hogbatch.wire.messages import Lease
from hogbatch.workers import feed
from hogbatch.workers.profile import profile
from hogbatch.workers.trainer import (
    MAX_TOGETHER,
    MEASUREMENTS,
    SPARSEST_DENSE,
    UNSHUFFLED,
    Trainer,
)
from tests.support.assignments import (
    FEATURES,
    assignment,
    evaluated,
    evaluated_scores,
    examples,
)
from tests.support.limited_devices import Clocked, Limited
from tests.support.pairs import pairs
from tests.support.stored_scores import assert_stored

ROWS, TEST_ROWS = 60, 25
either_feed = pytest.mark.parametrize("staged", [False, True], ids=["cached", "staged"])


def make(train, test=None, *, staged=False, **settings):
    """Return a trainer whose replica is the shared parameters, and its assignment."""
    given = assignment(train, test, **settings)
    with pytest.MonkeyPatch.context() as patch:
        if staged:
            patch.setattr(feed, "MAX_MEMORY_FRACTION", 0.0)
        trainer = Trainer(Limited(1 << 24), given)
    trainer.follow(0)
    return trainer, given


def train(trainer, *intervals, rate=0.1):
    for start, stop, batch in intervals:
        trainer.reserve(batch)
        trainer.train(start, stop, batch, rate)
    return trainer.replica.params


@either_feed
def test_steps_are_recorded_again_for_larger_batches(staged):
    rows, test = examples(ROWS), examples(TEST_ROWS, seed=1)
    steps = [(0, 15, 5), (15, 27, 12), (27, 42, 5), (42, 52, 10), (52, 60, 3)]
    trainer, _ = make(rows, test, staged=staged)
    trainer.evaluate(Lease(0, "test", 0, 0, TEST_ROWS, TEST_ROWS, 0.0, 0))  # largest of all
    trained = train(trainer, *steps)
    expected, _ = make(rows, staged=staged)
    for start, stop, batch in steps:
        expected.compute(densify=False)  # with nothing recorded
        train(expected, (start, stop, batch))
    assert_array_equal(trained, expected.replica.params)


@pairs(
    staged=[False, True],
    fields=[
        {"dropout": 0.4},
        {"backbone": "3x4x1,conv:4x2x2", "augmentation": Augmentation((3, 4, 1), True, 1, 7)},
    ],
)
def test_dropout_and_augmentation_depend_on_the_numbers_of_updates_and_rows(staged, fields):
    trainer, given = make(examples(ROWS), staged=staged, seed=7, **fields)
    expected, first = given.model.params.copy(), given.model.first.copy()
    trained = train(trainer, (0, 20, 5), (20, 40, 5))  # of each size, the second step is recorded
    layers, welcome = given.network.layer_views(), given.welcome
    below, flats = given.network.placed_backbone(), (expected, first, given.model.second)
    executor = Executor(NUMPY_KERNELS, np, layers, *flats, backbone=below)
    order, data = given.orders.row_order(0), (given.train.inputs, given.train.labels)
    for update, start in enumerate(range(0, 40, 5), 1):
        rows, totals = order[start : start + 5], np.zeros(TOTALS)
        random = Randomness(welcome.dropout, key_of(7, update), welcome.augmentation)
        executor.train_batch(*data, rows, *given.kinds, given.hyper(0.1), totals, random=random)
    assert_allclose(trained, expected, rtol=1e-5, atol=1e-7)


def test_compute_frees_earlier_arrays():
    trainer, _ = make(examples(ROWS))
    trainer.reserve(20)
    trainer.compute(densify=False)
    free = trainer.device.free_bytes()
    train(trainer, (0, ROWS, 20))
    trainer.compute(densify=False)
    assert trainer.device.free_bytes() == free


def test_nearly_empty_rows_may_not_be_made_dense():
    rows = examples(ROWS, sparse=True)
    few = SPARSEST_DENSE * ROWS * FEATURES  # stored cells
    for wider, may in ((1, True), (1.1 * len(rows.inputs.indices) / few, False)):
        wide = replace(rows, features=round(wider * FEATURES))
        assert make(wide)[0].may_densify == may


@either_feed
@pytest.mark.parametrize("several", [False, True], ids=["labels", "lists"])
def test_evaluation_gives_the_sums_over_the_test_set(staged, several):
    rows, test = (examples(n, several=several, seed=n) for n in (ROWS, TEST_ROWS))
    trainer, given = make(rows, test, staged=staged)
    totals = np.zeros(TOTALS)
    for start, stop in ((0, 9), (9, TEST_ROWS)):
        totals += trainer.evaluate(Lease(0, "test", 0, start, stop, 4, 0.0, 0))
    assert_allclose(totals, evaluated(given), rtol=1e-6)
    assert totals[LOSS] > 0 and totals[METRIC_SUMS] > 0
    assert_stored(given.scores, np.arange(TEST_ROWS), evaluated_scores(given))


def test_evaluation_uses_smaller_batches_when_memory_is_short():
    test = examples(TEST_ROWS, seed=1)
    trainer, given = make(examples(ROWS), test)
    one = Lease(0, "test", 0, 0, TEST_ROWS, 3, 0.0, 0)
    trainer.evaluate(one)
    device = trainer.device
    device.xp.limit -= device.free_bytes() - 100  # enough for three rows
    all_at_once = Lease(0, "test", 0, 0, TEST_ROWS, TEST_ROWS, 0.0, 0)
    assert_allclose(trainer.evaluate(all_at_once), evaluated(given), rtol=1e-6)
    trainer, _ = make(examples(ROWS), test)
    trainer.device.xp.limit -= trainer.device.free_bytes() - 100  # not enough for one
    with pytest.raises(MemoryError):
        trainer.evaluate(one)


class Timed(Clocked):
    """A device whose batches take `seconds`, and `slow` times as long until it has warmed up.

    `runs` contains the number of batches between two events, for each measurement.
    """

    warm_up_seconds, measured_seconds = 0.01, 0.02

    def __init__(self, seconds, slow=1.0):
        super().__init__(loss_gradient=slow * seconds)
        self.warm, self.batches, self.runs = seconds, 0, []

    def _run(self, *arguments):
        super()._run(*arguments)
        self.batches += 1
        if self.clock >= self.warm_up_seconds:
            self.seconds["loss_gradient"] = self.warm

    def record_event(self):
        return self.clock, self.batches

    def elapsed(self, start, end):
        self.runs.append(end[1] - start[1])
        return end[0] - start[0]


@pytest.mark.parametrize(
    ("seconds", "count"), [(0.0015, 14), (0.019, 2), (0.5, 1), (1e-6, MAX_TOGETHER)]
)
def test_a_measurement_takes_long_enough_and_is_timed_by_the_device(seconds, count):
    device = Timed(seconds)
    trainer = Trainer(device, assignment(examples(ROWS)))
    assert trainer.seconds(16) == pytest.approx(seconds)
    assert device.runs[-MEASUREMENTS:] == [count] * MEASUREMENTS
    assert count * seconds >= 0.02 or count == MAX_TOGETHER


def test_a_device_is_measured_when_it_has_warmed_up():
    device = Timed(0.001, slow=3.0)
    trainer = Trainer(device, assignment(examples(ROWS)))
    assert trainer.seconds(16) == pytest.approx(0.001)
    warm, device.runs = len(device.runs), []
    trainer.seconds(32)
    assert len(device.runs) < warm  # once only


def test_a_device_is_prepared_when_its_measurements_were_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))
    given = assignment(examples(ROWS))
    for _ in range(2):
        device = Timed(0.001)
        trainer = Trainer(device, given)
        measured = profile(trainer, given)
        assert device.clock >= device.warm_up_seconds
        assert not trainer.replica.totals.any() and trainer.replica.steps == 0
        _, batch = useful_limits(measured.profile, largest=largest_gpu_batch(ROWS))
        monkeypatch.setattr(device, "capture", lambda work: pytest.fail("captured in a lease"))
        trainer.follow(UNSHUFFLED)
        for _ in range(2):
            trainer.train(0, batch, batch, 0.1)
    assert device.batches < 25 + len(measured.profile)  # of the second start


def test_only_a_cached_sparse_set_travels_by_rows():
    rows = examples(ROWS, sparse=True)
    assert make(rows)[0].exchange_touched_rows()
    assert not make(rows, staged=True)[0].exchange_touched_rows()
