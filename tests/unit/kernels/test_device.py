import gc
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.errors import DeviceError
from hogbatch.kernels.contract import OPERATIONS
from hogbatch.kernels.gpu.device import CudaDevice, HostDevice, OutOfHostMemory


@pytest.mark.parametrize("memory", [None, 10_000])
def test_arrays_go_to_the_device_and_come_back(memory):
    device, host = HostDevice(memory), np.arange(6, dtype=np.float32).reshape(2, 3)
    there, back = device.to_device(host), np.empty_like(host)
    host[:] = 0  # the device has a copy of its own
    device.to_host(there, back)
    assert back.tolist() == [[0, 1, 2], [3, 4, 5]]
    device.copy_into(there, host)
    assert_array_equal(there, host)
    assert device.zeros((2, 2), np.int32).tolist() == [[0, 0], [0, 0]]


def test_copies_do_not_convert():
    device, there = HostDevice(), np.zeros(3, np.float32)
    with pytest.raises(TypeError):
        device.copy_into(there, np.zeros(3, np.float64))
    with pytest.raises(TypeError):
        device.to_host(there, np.zeros(3, np.int32))


def test_memory_counts_until_the_last_view_is_gone():
    device = HostDevice(memory_bytes=1000)
    array = device.empty((10, 10), np.float32)
    view = array[3:]
    del array
    assert device.free_bytes() == 600
    with pytest.raises(OutOfHostMemory, match="gpu:host has 600 of 1000 bytes left; 800 were"):
        device.zeros(100, np.float64)
    del view
    gc.collect()
    assert device.free_bytes() == 1000


def test_a_host_device_without_a_cap_reports_the_memory_of_the_machine():
    assert 0 < HostDevice().free_bytes() < 1 << 50


def test_a_host_device_needs_no_pinning_and_no_waiting():
    device, array = HostDevice(), np.zeros(3)
    assert device.pin(array)
    device.unpin(array)
    device.synchronize()
    device.free_unused()
    assert device.name == "gpu:host"
    assert all(callable(getattr(device.kernels, name)) for name in OPERATIONS)


def test_a_gpu_without_cupy_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"gpu:3 needs CuPy.*install hogbatch\[cuda12\]"):
        CudaDevice(3)
