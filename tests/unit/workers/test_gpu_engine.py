"""Training and evaluation of a GPU worker; see test_gpu_faults for failures."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import LOSS, METRIC_SUMS
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.workers import gpu
from tests.support.assignments import assignment, evaluated, examples
from tests.support.gpu_engine_driver import ROWS, SPARSE, WIDE, Rehearsal, epochs, lease
from tests.support.limited_devices import Kernels, Unmapped, Unpinned

TEST_ROWS = 90
FORMS = {"dense": {}, "sparse": SPARSE, "wide": WIDE}
pytestmark = pytest.mark.usefixtures("nothing_measured")
every_data = pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
each_data_and_rule = pytest.mark.parametrize(
    ("data", "merge"),
    list(zip(FORMS.values(), ["delta", "average", "delta"], strict=True)),
    ids=FORMS,
)


def train(given, leases, device=None):
    """The shared parameters after all `leases` are done."""
    reports = Rehearsal(given, leases, device).hear(len(leases))
    assert [report.rows for report in reports] == [one.stop - one.start for one in leases]
    return given.model.params


@each_data_and_rule
def test_losses_decrease_and_every_row_is_reported(data, merge):
    given = assignment(examples(ROWS, **data), merge=merge, merge_every=3, optimizer="adagrad")
    leases, losses = epochs(6), np.zeros(6)
    reports = Rehearsal(given, leases).hear(len(leases))
    for one, report in zip(leases, reports, strict=True):
        rows = one.stop - one.start
        assert (report.lease, report.rows) == (one.number, rows)
        assert report.updates == -(-rows // (3 * one.batch_size))
        assert report.skipped == report.refused == report.too_large == report.staleness == 0
        assert report.seconds > 0 and report.metric_sums == ()
        losses[one.epoch] += report.loss
    assert losses[-1] < 0.6 * losses[0]
    assert given.model.merges[0] == sum(report.updates for report in reports)


def test_a_prepared_engine_returns_its_measurements():
    ready = Rehearsal(assignment(examples(ROWS), precision="tf32"))
    sizes = [rows for rows, _ in ready.profile]
    assert sizes[0] == 16 and sizes == sorted(sizes) and sizes[-1] <= ROWS
    assert ready.precisions == ["tf32"]
    assert (ready.engine.device, ready.engine.label, ready.engine.threads) == ("gpu", "gpu:host", 1)


@every_data
def test_the_merge_frequency_does_not_matter_for_a_single_worker(data):
    rows = examples(ROWS, **data)
    often, seldom = (train(assignment(rows, merge_every=n), epochs(2)) for n in (1, 7))
    assert_allclose(often, seldom, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_exchanging_touched_rows_equals_exchanging_all(optimizer):
    rows, given = examples(ROWS, **WIDE), assignment(examples(ROWS, **WIDE), optimizer=optimizer)
    travelled = []

    def count(fraction, touched, found, change, shared):
        if shared.base is not None and np.shares_memory(shared, given.model.memory):
            travelled.append(found[0])  # not a measurement
        add_rows(fraction, touched, found, change, shared)

    device = HostDevice()
    add_rows, device.kernels = device.kernels.add_rows, Kernels(add_rows=count)
    by_rows = train(given, epochs(2), device)
    tables = 2 if optimizer == "adagrad" else 1  # Adagrad's slots are exchanged too
    assert len(travelled) == 2 * 20 * tables  # merges
    whole = train(assignment(rows, optimizer=optimizer), epochs(2), Unmapped())
    assert_allclose(by_rows, whole, atol=1e-6)


@each_data_and_rule
def test_evaluation_includes_all_previous_leases(data, merge):
    train_rows, test = examples(ROWS, **data), examples(TEST_ROWS, **data, seed=2)
    given = assignment(train_rows, test, merge=merge)
    rig, losses = Rehearsal(given), []
    for epoch in range(3):
        one = lease(0, TEST_ROWS, 40, task="test", number=2, rate=0.0)
        _, report = rig.do(lease(epoch=epoch), one)
        totals = evaluated(given)
        assert (report.lease, report.rows, report.updates) == (2, TEST_ROWS, 0)
        assert report.loss == pytest.approx(totals[LOSS], rel=1e-5)
        assert report.metric_sums == pytest.approx(tuple(totals[METRIC_SUMS:]))
        losses.append(report.loss)
    assert losses[-1] != losses[0]


@every_data
def test_unpinned_memory_is_logged_once_and_training_continues(data, caplog):
    trained = []
    for device in (HostDevice(), Unpinned()):
        caplog.clear()
        given = assignment(examples(ROWS, **data), optimizer="adagrad")
        trained.append(train(given, epochs(2), device))
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == ["shared memory cannot be pinned, so pulls and merges are slower"]
    assert_allclose(trained[1], trained[0], atol=1e-6)


# With other workers ----------------------------------------------------------------------------


@every_data
def test_concurrent_updates_of_others_are_not_lost(data):
    given, done = assignment(examples(ROWS, **data), merge_every=2), []
    # The last feature is 0 everywhere: only this test changes its weights.
    weights = given.network.tensors()[0].view(given.model.params)[-1]
    before = weights.copy()

    def heard(report):  # a CPU worker's update, while the next interval is trained
        weights[:] += 1
        done.append(report)

    leases = epochs(3)
    rig = Rehearsal(given, leases, heard=heard)
    assert sum(report.rows for report in rig.hear(len(leases))) == 3 * ROWS
    assert_allclose(weights, before + len(done), atol=1e-5)


def test_an_idle_worker_pulls_before_it_continues():
    given = assignment(examples(ROWS))
    rig, start = Rehearsal(given), given.model.params.copy()
    rig.do(lease())
    trained = given.model.params.copy()
    given.model.params[:] = start
    given.model.steps[0] += 100
    (report,) = rig.do(lease(number=2))
    assert report.staleness == 0
    assert_array_equal(given.model.params, trained)


def test_damping_reduces_stale_changes():
    moved = []
    for damping in ("off", "root"):
        given = assignment(examples(ROWS), staleness_damping=damping)
        before, slow = given.model.params.copy(), HostDevice()

        def loss_gradient(*arguments, steps=given.model.steps, kernel=slow.kernels.loss_gradient):
            steps[0] += 1  # another worker makes one update per batch
            kernel(*arguments)

        slow.kernels = Kernels(loss_gradient=loss_gradient)
        moved.append(train(given, [lease()], slow) - before)
    plain, damped = (np.abs(each).sum() for each in moved)
    assert 0.5 * plain < damped < 0.95 * plain


def test_the_exchange_thread_does_not_hold_pythons_lock_for_long(monkeypatch):
    """Batches take tenths of a millisecond; Python's own limit is 5 ms."""
    limits, before = [], sys.getswitchinterval()
    monkeypatch.setattr(sys, "argv", ["gpu", "run", "--device", "host"])

    def run(*_):
        limits.append(sys.getswitchinterval())
        sys.exit()

    monkeypatch.setattr(gpu, "run", run)
    try:
        with pytest.raises(SystemExit):
            gpu.main()
    finally:
        sys.setswitchinterval(before)
    assert limits[0] <= 2e-4
