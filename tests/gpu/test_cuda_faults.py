"""A GPU worker with out of memory, device failures and unpinned memory, by CuPy's own errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.errors import DeviceError
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import ROWS, Rehearsal, lease

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path, monkeypatch):
    """Use an empty cache, so that every engine measures its device."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))


@pytest.fixture
def rehearse(make_cuda):
    """An engine that creates its own GPU device; the data are the same each time."""
    return lambda device=None: Rehearsal(assignment(examples(ROWS)), device=device or make_cuda())


def test_a_batch_too_large_for_the_gpu_is_returned_and_smaller_ones_train(rehearse, cuda):
    rig, pool = rehearse(), cuda.xp.get_default_memory_pool()
    large = 200_000  # rows of a batch; only its scratch memory counts
    cuda.free_unused()
    pool.set_limit(size=pool.total_bytes() + (4 << 20))
    try:
        (refused,) = rig.do(lease(batch=large))
        assert (refused.rows, refused.too_large) == (0, large)
        (done,) = rig.do(lease(batch=64))
        assert (done.rows, done.too_large) == (ROWS, 0)
    finally:
        pool.set_limit(size=0)


@pytest.mark.parametrize("kind", ["runtime.CUDARuntimeError", "driver.CUDADriverError"])
def test_a_failed_gpu_exits_its_worker_with_the_device_error_code(rehearse, make_cuda, kind):
    device = make_cuda()
    module, name = kind.split(".")
    error = getattr(getattr(device.xp.cuda, module), name)
    rig = rehearse(device)

    def fail(*_):
        raise error(700)  # illegal address: the device is unusable in this process

    device.kernels.take = fail
    (end,) = rig.do(lease())
    assert isinstance(end, DeviceError) and end.exit_code == 12
    assert str(end).startswith("gpu:0 has failed: ")


def test_a_gpu_that_cannot_pin_memory_still_trains(rehearse, cuda, monkeypatch, caplog):
    rig = rehearse()
    rig.do(lease())

    def refuse(*_):
        raise cuda.xp.cuda.runtime.CUDARuntimeError(801)  # not supported

    monkeypatch.setattr(cuda.xp.cuda.runtime, "hostRegister", refuse)
    unpinned = rehearse()
    (done,) = unpinned.do(lease())
    assert done.rows == ROWS
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "shared memory cannot be pinned, so pulls and merges are slower"
    ]
    assert_allclose(unpinned.given.model.params, rig.given.model.params, atol=1e-5)
    assert np.isfinite(unpinned.given.model.params).all()
