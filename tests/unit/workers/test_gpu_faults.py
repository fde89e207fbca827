"""A GPU worker with out of memory, values that are not finite, and device failures."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.errors import DeviceError, HogbatchError
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.wire.messages import Done, Failed
from hogbatch.workers.exchange import MAX_REFUSED
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import ROWS, SPARSE, WIDE, Rehearsal, big, epochs, lease
from tests.support.limited_devices import Kernels, Limited, OutOfHostMemory

TEST_ROWS = 90
NAN = float("nan")
pytestmark = pytest.mark.usefixtures("nothing_measured")


def assigned(data=None, **settings):
    """An assignment with ROWS training rows; the parameters are the same each time."""
    return assignment(examples(ROWS, **(data or {})), **settings)


def params_after(*leases, data=None, **settings):
    """The shared parameters after training without faults."""
    rig = Rehearsal(assigned(data, **settings), leases)
    rig.hear(len(leases))
    return rig.given.model.params


# Memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", range(30_000, 70_000, 10_000))
def test_no_row_is_lost_with_any_amount_of_memory(memory):
    test = examples(TEST_ROWS, seed=1)
    given = assignment(examples(ROWS), test, merge_every=2)
    rig, batch, rows = Rehearsal(given, device=Limited(memory)), 512, 0
    for epoch in range(4):
        start = 0
        while start < ROWS:
            (done,) = rig.do(lease(start, ROWS, batch, epoch=epoch))
            assert isinstance(done, Done), done
            assert done.rows == ROWS - start or done.too_large == batch
            rows, start = rows + done.rows, start + done.rows
            batch = batch // 2 if done.too_large else batch
        (done,) = rig.do(lease(0, TEST_ROWS, TEST_ROWS, task="test"))
        assert done.rows == TEST_ROWS
    assert rows == 4 * ROWS


class Exhausting(HostDevice):
    """Runs out of memory once, at the `at`-th batch from now on."""

    def __init__(self):
        super().__init__()
        self.at = -1
        self.kernels = Kernels(loss_gradient=self._loss_gradient)

    def _loss_gradient(self, *arguments):
        self.at -= 1
        if self.at == 0:
            raise OutOfHostMemory("no memory in the middle")
        HostDevice.kernels.loss_gradient(*arguments)


@pytest.mark.parametrize(
    ("data", "at", "kept"),
    [
        *(({}, 1, 0), (SPARSE, 3, 0), (WIDE, 4, 96)),
        *(({}, 6, 96), (SPARSE, 7, 192), (WIDE, 19, 576)),
    ],
)
def test_running_out_of_memory_in_a_lease_keeps_merged_changes(data, at, kept):
    settings = {"data": data, "merge_every": 3}
    rig = Rehearsal(assigned(**settings), device=Exhausting())
    before = lease(0, 64, number=7)
    rig.engine.submit(before)
    rig.hear(1)
    rig.device.at = at
    (done,) = rig.do(lease())
    assert (done.rows, done.updates, done.too_large) == (kept, kept // 96, 32)
    assert (done.loss > 0) == (kept > 0) and done.skipped == done.refused == 0
    (rest,) = rig.do(lease(kept, ROWS, 16, number=2))
    assert rest.rows == ROWS - kept and rest.too_large == 0
    parts = [before, *[lease(0, kept)] * (kept > 0), lease(kept, ROWS, 16)]
    expected = Rehearsal(assigned(**settings), parts)
    assert rest.loss == pytest.approx(expected.hear(len(parts))[-1].loss, rel=1e-4)
    np.testing.assert_allclose(rig.given.model.params, expected.given.model.params, atol=1e-6)


def test_the_pending_merge_is_reported_after_out_of_memory():
    device = Exhausting()
    rig = Rehearsal(assigned(), device=device)
    device.at = 8 + 1 + 2  # in the third lease, at its second batch
    one, two, three = rig.do(*epochs(1))
    assert [(done.rows, done.too_large) for done in (one, two, three)] == [
        (250, 0),
        (1, 0),
        (32, 32),
    ]


def test_a_device_too_small_for_one_row_fails():
    rig = Rehearsal(assigned(), device=big())
    rig.leave(10)
    (error,) = rig.do(lease(batch=1))
    assert isinstance(error, HogbatchError)
    assert str(error).startswith("a batch of one row does not fit into memory: gpu:host has ")


def test_a_device_too_small_for_the_model_is_an_error_with_advice():
    with pytest.raises(HogbatchError, match="gpu:host has too little memory for this network: "):
        Rehearsal(assigned(), device=Limited(500))


# Numbers that are not finite -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "optimizer"),
    [({}, "sgd"), (SPARSE, "adam"), (WIDE, "adagrad"), (WIDE, "adam")],
)
def test_a_change_that_is_not_finite_is_refused_with_the_change_based_on_it(data, optimizer):
    settings = {"data": data, "optimizer": optimizer}
    good = [lease(64, 128, number=3), lease(128, ROWS, number=4)]
    leases = [lease(0, 32, rate=NAN, number=1), lease(32, 64, number=2), *good]
    given = assigned(**settings)
    before, seen = given.model.params.copy(), []
    rig = Rehearsal(given, leases, heard=lambda _: seen.append(given.model.params.copy()))
    refused, given_up, *rest = rig.hear(4)
    assert (refused.rows, refused.updates, refused.skipped, refused.refused) == (32, 0, 32, 1)
    assert (given_up.rows, given_up.updates, given_up.skipped, given_up.refused) == (32, 0, 32, 0)
    assert refused.loss == given_up.loss == 0
    assert_array_equal(seen[0], before)
    assert_array_equal(seen[1], before)
    for done, one in zip(rest, good, strict=True):
        assert done.rows == one.stop - one.start and done.skipped == done.refused == 0
    # Continues from the shared parameters, with slots unaffected by the change.
    np.testing.assert_allclose(given.model.params, params_after(*good, **settings), atol=1e-6)


def test_a_change_may_be_refused_in_the_middle_of_a_lease():
    device = HostDevice()
    batches = iter(range(10**6))

    def weight_gradient(x, grad, out, bias):
        HostDevice.kernels.weight_gradient(x, grad, out, bias)
        if len(x) == 10 and next(batches) == 2 * 7:  # two layers: of the eighth batch
            out[0, 0] = NAN

    device.kernels = Kernels(weight_gradient=weight_gradient)
    (done,) = Rehearsal(assigned(), device=device).do(lease(batch=10))
    assert (done.rows, done.updates, done.skipped, done.refused) == (ROWS, 58, 20, 1)
    assert done.loss > 0


def test_too_many_consecutive_refusals_fail_the_worker():
    given = assigned()
    before = given.model.params.copy()
    leases = [lease(32 * n, 32 * n + 32, rate=NAN, number=n) for n in range(2 * MAX_REFUSED - 1)]
    *reports, error = Rehearsal(given, leases).hear(len(leases))
    assert [done.refused for done in reports] == [1, 0] * (MAX_REFUSED - 1)
    assert isinstance(error, HogbatchError) and "were not finite" in str(error)
    assert_array_equal(given.model.params, before)


def test_a_worker_with_occasional_refusals_continues():
    rig = Rehearsal(assigned(WIDE, optimizer="adagrad"))
    for _ in range(2 * MAX_REFUSED):
        (refused,) = rig.do(lease(0, 32, rate=NAN))
        (done,) = rig.do(lease(32, 64))
        assert (refused.refused, done.refused, done.skipped) == (1, 0, 0)


# Fences ----------------------------------------------------------------------------------------


def test_nothing_is_merged_after_a_raised_fence():
    given = assigned()
    before = given.model.params.copy()
    given.fence[0] = 1
    (failed,) = Rehearsal(given).do(lease())
    assert failed == Failed("lease 1 was revoked after 0 rows")
    assert_array_equal(given.model.params, before)
    assert given.model.merges[0] == 0


# Devices that fail -----------------------------------------------------------------------------


class Broken(Exception):
    """The exception of a device failure."""


class Breaking(HostDevice):
    """A device that fails once, in the call named `when`, after `prepared`."""

    failures = (Broken,)

    def __init__(self):
        super().__init__()
        self.when = None
        self.kernels = Kernels(loss_gradient=self._loss_gradient, add=self._add)

    def _loss_gradient(self, *arguments):
        self._perhaps("training")
        HostDevice.kernels.loss_gradient(*arguments)

    def _add(self, *arguments):
        self._perhaps("merging")
        HostDevice.kernels.add(*arguments)

    def copy_into(self, array, host):
        self._perhaps("pulling")
        super().copy_into(array, host)

    def _perhaps(self, what):
        if self.when == what:
            self.when = None
            raise Broken("it fell off the bus")


@pytest.mark.parametrize("when", ["training", "merging", "pulling"])
def test_a_device_failure_fails_the_worker(when):
    rig = Rehearsal(assigned(), device=Breaking())
    rig.device.when = when
    (error,) = rig.do(lease())
    assert isinstance(error, DeviceError) and error.exit_code == 12
    assert str(error) == "gpu:host has failed: it fell off the bus"


def test_a_device_failure_during_measurement_fails_preparation():
    device = Breaking()
    device.when = "training"
    with pytest.raises(DeviceError, match="gpu:host has failed: it fell off the bus"):
        Rehearsal(assigned(), device=device)


def test_an_unexpected_exception_is_reported_unchanged():
    rig = Rehearsal(assigned())
    (error,) = rig.do(lease(task="test"))  # there is no test set
    assert isinstance(error, KeyError)
