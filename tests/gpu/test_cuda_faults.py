"""A GPU worker with out of memory, device failures and unpinned memory, by CuPy's own errors."""

import pytest

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


def error_of(device, kind, status):
    """An error of CuPy with this status."""
    module, name = kind.split(".")
    return getattr(getattr(device.xp.cuda, module), name)(status)


every_error = pytest.mark.parametrize(
    "kind", ["runtime.CUDARuntimeError", "driver.CUDADriverError"]
)


@every_error
def test_only_some_errors_mean_that_memory_has_run_out(cuda, kind):
    assert cuda.is_out_of_memory(error_of(cuda, kind, 2))
    assert not cuda.is_out_of_memory(error_of(cuda, kind, 700))
    assert cuda.is_out_of_memory(MemoryError())
    assert not cuda.is_out_of_memory(ValueError())


@every_error
def test_a_capture_without_memory_returns_the_rest_of_the_lease(rehearse, make_cuda, kind):
    device = make_cuda()
    rig, capture = rehearse(device), device.capture
    failures = [error_of(device, kind, 2)]

    def fail_once(work):
        if failures:
            work()
            raise failures.pop()
        return capture(work)

    device.capture = fail_once
    (returned,) = rig.do(lease(batch=90))  # captured at the second batch of this size
    assert (returned.rows, returned.too_large) == (180, 90)
    (done,) = rig.do(lease(90, batch=45))
    assert (done.rows, done.too_large) == (ROWS - 90, 0)


def test_a_worker_never_spins_while_it_waits_for_the_gpu(rehearse, cuda, monkeypatch):
    def spin(stream):
        raise AssertionError("cudaStreamSynchronize keeps a core busy")

    blocking, event = [], cuda.xp.cuda.Event

    def make_event(block=False, **settings):
        blocking.append(block)
        return event(block=block, **settings)

    monkeypatch.setattr(cuda.xp.cuda.Stream, "synchronize", spin)
    monkeypatch.setattr(cuda.xp.cuda, "Event", make_event)
    (done,) = rehearse().do(lease())
    assert done.rows == ROWS
    assert blocking and all(blocking)


@every_error
def test_a_failed_gpu_exits_its_worker_with_the_device_error_code(rehearse, make_cuda, kind):
    device = make_cuda()
    rig = rehearse(device)

    def fail(*_):
        raise error_of(device, kind, 700)  # illegal address: the device is unusable in this process

    device.record_event = fail
    (end,) = rig.do(lease())
    assert isinstance(end, DeviceError) and end.exit_code == 12
    assert str(end).startswith("gpu:0 has failed: ")
