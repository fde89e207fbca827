import gc
import inspect
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.errors import DeviceError
from hogbatch.kernels.contract import Kernels
from hogbatch.kernels.gpu.contract import ReplicaKernels, StagingKernels
from hogbatch.kernels.gpu.cuda_device import CudaDevice
from hogbatch.kernels.gpu.device import Device, HostDevice, OutOfHostMemory, memory_shortage
from hogbatch.machine import budget
from tests.support.operations import operations


@pytest.mark.parametrize("memory", [None, 10_000])
def test_arrays_round_trip_to_the_device(memory):
    device, host = HostDevice(memory), np.arange(6, dtype=np.float32).reshape(2, 3)
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


def test_pinning_and_waiting_are_no_ops_on_a_host_device():
    device, array = HostDevice(), np.zeros(3)
    assert device.pin(array)
    device.unpin(array)
    device.synchronize()
    device.free_unused()
    assert device.name == "gpu:host"
    for contract in (Kernels, ReplicaKernels, StagingKernels):
        assert all(callable(getattr(device.kernels, name)) for name in operations(contract))


def parameters(function):
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("kind", [HostDevice, CudaDevice])
def test_every_device_implements_the_protocol(kind):
    calls = [name for name in vars(Device) if not name.startswith("_")]
    assert {"enter", "capture", "start_copy", "copy_stream", "mapped"} <= set(calls)
    for name in calls:
        assert parameters(getattr(kind, name)) == parameters(getattr(Device, name)), name


def test_device_attributes_are_defined():
    device = HostDevice()
    assert all(hasattr(device, name) for name in Device.__annotations__)


def test_work_before_an_event_is_done_after_waiting():
    device = HostDevice()
    device.enter()
    there = device.to_device(np.arange(3.0))
    there += 1
    mark = device.record_event()
    device.wait_event(mark)
    device.synchronize_event(mark)
    assert there.tolist() == [1, 2, 3]


def test_captured_work_runs_once_and_again_at_each_replay():
    device, there = HostDevice(), np.zeros(2)

    def work():
        there.__iadd__(1)

    repeat = device.capture(work)
    assert there.tolist() == [1, 1]
    repeat()
    repeat()
    assert there.tolist() == [3, 3]


@pytest.mark.parametrize(("shape", "dtype"), [((2, 3), np.float32), (5, np.int64), (0, np.int32)])
def test_pinned_memory_is_a_host_array(shape, dtype):
    array = HostDevice(memory_bytes=0).pinned(shape, dtype)  # does not use device memory
    array[...] = 7
    assert array.shape == np.empty(shape).shape and array.dtype == dtype
    assert array.flags.c_contiguous and array.flags.writeable


def test_device_writes_to_mapped_memory_reach_the_host():
    device, host = HostDevice(), np.zeros(3, np.float32)
    mapped = device.mapped(host)
    device.kernels.add(0.5, np.array([2, 4, 6], np.float32), mapped)
    assert host.tolist() == [1, 2, 3]


def test_a_started_copy_is_complete_after_its_event():
    device = HostDevice()
    host, there = device.pinned(3, np.int32), device.zeros(3, np.int32)
    host[:] = 1, 2, 3
    device.synchronize_event(device.start_copy(there, host))
    host[:] = 0
    assert there.tolist() == [1, 2, 3]
    with pytest.raises(TypeError):
        device.start_copy(there, np.zeros(3, np.float32))


def test_work_in_the_copy_stream_is_done():
    device, there = HostDevice(), np.zeros(3)
    with device.copy_stream():
        there += 1
        event = device.record_event()
    device.wait_event(event)
    assert there.tolist() == [1, 1, 1]


def test_a_gpu_without_cupy_is_an_error_naming_the_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"gpu:3 needs CuPy.*install hogbatch\[cuda12\]"):
        CudaDevice(3)


def test_host_memory_is_limited_by_the_cgroup(monkeypatch):
    monkeypatch.setattr(budget, "memory_quota", lambda: 12_345)
    assert HostDevice().free_bytes() == 12_345


def test_a_shortage_of_memory_is_reported_after_its_exception_is_gone():
    device = HostDevice(memory_bytes=1000)

    def work():
        held = device.zeros(100, np.float64)
        device.zeros(100, np.float64)
        return held

    assert memory_shortage(device, work).startswith("gpu:host has 200 of 1000 bytes left")
    assert device.free_bytes() == 1000  # no traceback holds the first array
    assert memory_shortage(device, lambda: None) is None


def test_another_error_is_no_shortage_of_memory():
    def work():
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        memory_shortage(HostDevice(), work)
