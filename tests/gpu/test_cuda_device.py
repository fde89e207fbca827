import mmap
import os

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.errors import DeviceError
from hogbatch.kernels.gpu.device import CudaDevice

pytestmark = pytest.mark.gpu


@pytest.fixture
def mapping():
    """A shared mapping of 1 MiB, as the store makes them."""
    file = os.memfd_create("test")
    os.posix_fallocate(file, 0, 1 << 20)
    with mmap.mmap(file, 1 << 20) as shared:
        os.close(file)
        array = np.frombuffer(shared, np.float32)
        yield array
        del array


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_arrays_go_to_the_device_and_come_back(cuda, dtype):
    host = np.arange(12, dtype=dtype).reshape(3, 4)
    there, back = cuda.to_device(host), np.empty_like(host)
    cuda.to_host(there, back)
    assert_array_equal(back, host)
    cuda.copy_into(there, host * 2)
    cuda.to_host(there, back)
    assert_array_equal(back, host * 2)


def test_empty_arrays_travel(cuda):
    host = np.empty((0, 0), np.float32)
    there = cuda.to_device(host)
    cuda.to_host(there, host)
    assert there.shape == (0, 0)


def test_shared_memory_is_pinned_once_and_copied_from(cuda, mapping):
    assert cuda.pin(mapping)
    try:
        assert not cuda.pin(mapping)  # it is already; refused without an error
        mapping[:] = np.arange(len(mapping))
        there, back = cuda.to_device(mapping), np.empty_like(mapping)
        mapping[:] = 0  # the copy is complete when the call returns
        cuda.to_host(there, back)
        assert_array_equal(back, np.arange(len(back)))
    finally:
        cuda.unpin(mapping)
    assert cuda.pin(mapping)
    cuda.unpin(mapping)


def test_unpinning_what_was_never_pinned_is_no_error(cuda):
    cuda.unpin(np.zeros(1000))
    cuda.synchronize()


def test_out_of_memory_is_caught_and_survived(cuda):
    with pytest.raises(cuda.out_of_memory):
        cuda.empty(cuda.free_bytes() * 2, np.uint8)
    cuda.free_unused()
    back = np.ones(4, np.float32)
    cuda.to_host(cuda.zeros(4, np.float32), back)
    assert not back.any()


def test_free_bytes_falls_with_what_is_held(cuda):
    cuda.free_unused()
    before = cuda.free_bytes()
    held = cuda.empty(1 << 28, np.uint8)
    assert cuda.free_bytes() <= before - held.nbytes // 2


def test_a_gpu_that_does_not_exist_is_refused(cuda):
    with pytest.raises(DeviceError, match="gpu:999 cannot be used"):
        CudaDevice(999)
    cuda.synchronize()
