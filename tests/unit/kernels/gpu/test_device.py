import gc
import inspect
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.errors import DeviceError
from hogbatch.kernels.gpu.cuda_device import CudaDevice
from hogbatch.kernels.gpu.device import Device, HostDevice, memory_shortage
from hogbatch.machine import budget
from tests.support.limited_devices import Limited, OutOfHostMemory
from tests.support.operations import operations


@pytest.mark.parametrize("device", [HostDevice(), Limited(10_000)], ids=["host", "limited"])
def test_arrays_round_trip_to_the_device(device):
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    there, back = device.to_device(host), np.empty_like(host)
    host[:] = 0  # the device has its own copy
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
    with pytest.raises(TypeError):
        device.queue_copy(there, np.zeros(3, np.float64))


def test_memory_counts_until_the_last_view_is_gone():
    device = Limited(1000)
    array = device.empty((10, 10), np.float32)
    view = array[3:]
    del array
    assert device.free_bytes() == 600
    with pytest.raises(OutOfHostMemory, match="gpu:host has 600 of 1000 bytes left; 800 were"):
        device.zeros(100, np.float64)
    del view
    gc.collect()
    assert device.free_bytes() == 1000


def parameters(function):
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(function).parameters.values()
    ]


def test_a_gpu_has_all_operations_but_those_that_are_the_same_on_the_host():
    for name in operations(Device):
        assert parameters(getattr(CudaDevice, name)) == parameters(getattr(Device, name)), name
    inherited = {*operations(Device)} - vars(CudaDevice).keys()
    assert inherited == {"host_time", "to_device", "empty", "zeros"}


def test_a_gpu_without_cupy_is_an_error_naming_the_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"gpu:3 needs CuPy.*install hogbatch\[cuda12\]"):
        CudaDevice(3)


def test_host_memory_is_limited_by_the_cgroup(monkeypatch):
    monkeypatch.setattr(budget, "memory_quota", lambda: 12_345)
    assert HostDevice().free_bytes() == 12_345


def test_a_shortage_of_memory_is_reported_after_its_exception_is_gone():
    device = Limited(1000)

    def work():
        held = device.zeros(100, np.float64)
        device.zeros(100, np.float64)
        return held

    assert memory_shortage(device, work).startswith("gpu:host has 200 of 1000 bytes left")
    assert device.free_bytes() == 1000  # no traceback holds the first array
    assert memory_shortage(device, lambda: None) is None
    with pytest.raises(ZeroDivisionError):  # another error
        memory_shortage(device, lambda: 1 // 0)


def test_a_measurement_on_the_host_leaves_out_the_time_of_other_programs():
    assert HostDevice().measure(lambda: time.sleep(0.1)) < 0.1
