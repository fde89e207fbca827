import mmap
import os
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.errors import DeviceError
from hogbatch.kernels.contract import LINEAR
from hogbatch.kernels.gpu.cuda_device import CudaDevice
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.fence import Fences
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment

pytestmark = pytest.mark.gpu


@pytest.fixture
def mapping():
    """A shared mapping of 1 MiB, as created by the store."""
    file = os.memfd_create("test")
    os.posix_fallocate(file, 0, 1 << 20)
    shared = mmap.mmap(file, 1 << 20)
    os.close(file)
    return np.frombuffer(shared, np.float32)


def fetch(device, array):
    """Copy a device array to the host."""
    host = np.empty(array.shape, array.dtype)
    device.to_host(array, host)
    return host


def ones(count):
    return np.ones(count, np.float32)


def add(device, change, sums, spare=None):
    """sums += change, by a kernel that overwrites `spare`."""
    spare = device.xp.empty_like(change) if spare is None else spare
    device.kernels.add(1.0, 0.0, spare, change, sums, sums)


def test_pinned_shared_memory_is_copied(cuda, mapping):
    assert cuda.pin(mapping)
    try:
        assert not cuda.pin(mapping)  # already pinned: returns False without an error
        mapping[:] = np.arange(len(mapping))
        there, back = cuda.to_device(mapping), np.empty_like(mapping)
        mapping[:] = 0  # the copy is complete when the call returns
        cuda.to_host(there, back)
        assert_array_equal(back, np.arange(len(back)))
    finally:
        cuda.unpin(mapping)
    cuda.unpin(mapping)  # not pinned: does nothing
    assert cuda.pin(mapping)
    cuda.unpin(mapping)


def test_a_registered_model_is_copied_and_added_to(cuda):
    """In a segment as a run creates it: a copy fails that spans registered and other memory."""
    model, orders = SharedModel.fields(20_003, 2), EpochOrders.fields(5_001)  # no whole pages
    segment = Segment.create("test", arrange(model, orders, Fences.fields()))
    params, memory = segment.array("model/params"), SharedModel.of(segment).memory
    assert cuda.pin(memory)
    try:
        for number, name in enumerate([*model, *orders]):
            array = segment.array(name)
            array[...] = np.arange(array.size).reshape(array.shape) + number
            assert_array_equal(fetch(cuda, cuda.to_device(array)), array)
        expected = params + 1
        seen, pulled = cuda.zeros(params.size, np.float32), cuda.zeros(params.size, np.float32)
        change = cuda.to_device(ones(params.size))
        cuda.kernels.add(1.0, 0.0, seen, change, cuda.mapped(params), pulled)
        cuda.synchronize()
        assert_array_equal(params, expected)
    finally:
        cuda.unpin(memory)
        del params, memory, array
        segment.close()


def test_the_device_is_usable_after_out_of_memory(cuda):
    with pytest.raises(MemoryError):
        cuda.empty(cuda.free_bytes() * 2, np.uint8)
    cuda.free_unused()
    back = np.ones(4, np.float32)
    cuda.to_host(cuda.zeros(4, np.float32), back)
    assert not back.any()


def test_the_copy_stream_is_used_in_its_block_and_its_events_have_times(cuda):
    sums, own = cuda.to_device(ones(100_000)), cuda.xp.cuda.get_current_stream()
    change, began = cuda.to_device(ones(100_000)), time.perf_counter()
    with cuda.copy_stream():
        assert cuda.xp.cuda.get_current_stream() != own
        started = cuda.record_event()
        for _ in range(50):
            add(cuda, change, sums)
        ended = cuda.record_event()
    assert cuda.xp.cuda.get_current_stream() == own
    cuda.wait_event(ended)
    assert (fetch(cuda, sums) == 51).all()
    assert 0 < cuda.elapsed(started, ended) < 2 * (time.perf_counter() - began)


def in_a_thread(device, work):
    """Run `work` in a thread that has entered the device; return its result."""
    results = []

    def live():
        device.enter()
        results.append(work())

    thread = threading.Thread(target=live)
    thread.start()
    thread.join()
    return results[0]


def test_a_thread_waits_for_the_work_of_another(cuda):
    shared, change = cuda.to_device(ones(100_000)), cuda.to_device(ones(100_000))
    for _ in range(50):
        add(cuda, change, shared)
    asked = cuda.record_event()

    def read():
        cuda.wait_event(asked)
        add(cuda, change, shared)
        return fetch(cuda, shared)

    assert (in_a_thread(cuda, read) == 52).all()


def test_every_thread_has_its_own_stream(cuda):
    def current():
        return cuda.xp.cuda.get_current_stream()

    default = cuda.xp.cuda.Stream.null
    streams = [current(), in_a_thread(cuda, current), in_a_thread(cuda, current)]
    assert len({stream.ptr for stream in (default, *streams)}) == 4
    assert all(stream.is_non_blocking for stream in streams)


@pytest.mark.parametrize("call", [1, 2], ids=["done", "recorded"])
def test_work_that_fails_during_capture_raises_its_own_error(cuda, call):
    sums, change, spare = (cuda.to_device(ones(5)) for _ in range(3))
    calls = []

    def work():
        calls.append(1)
        if len(calls) == call:
            raise ValueError("of the work")
        add(cuda, change, sums, spare)

    with pytest.raises(ValueError, match="of the work"):
        cuda.capture(work)
    assert (fetch(cuda, sums) == call).all()
    repeat = cuda.capture(work)  # the stream is free again
    repeat()
    assert (fetch(cuda, sums) == call + 2).all()


PRODUCTS = {  # each with the same product on the host
    "dense_forward": lambda x, w, g: x @ w,
    "dense_backward": lambda x, w, g: g @ w.T,
    "weight_gradient": lambda x, w, g: x.T @ g,
}
SIZE = 256


def as_operand(device, host):
    """`host` on the device, in the type that the products of its precision read."""
    there = device.to_device(host)
    out = device.empty(host.shape, device.kernels.operand_type(host.dtype))
    device.kernels.to_operands(there, out)
    return out


def product(device, name, *operands):
    x, w, g = (as_operand(device, each) for each in operands)
    bias = device.zeros(SIZE, np.float32)
    out = device.empty((SIZE, SIZE), np.float32)
    none = out[:0, :0]
    arguments = {
        "dense_forward": (x, w, bias, LINEAR, SIZE, out),
        "dense_backward": (g, w, LINEAR, none, out),
        "weight_gradient": (x, g, out, bias),
    }[name]
    getattr(device.kernels, name)(*arguments)
    return fetch(device, out)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(("precision", "bits"), [("tf32", 11), ("bfloat16", 8)])  # of mantissas
def test_a_faster_precision_is_close_but_not_equal(cuda, make_cuda, name, precision, bits):
    random = np.random.default_rng(3)
    operands = [random.normal(size=(SIZE, SIZE)).astype(np.float32) for _ in range(3)]
    exact = PRODUCTS[name](*(each.astype(float) for each in operands))
    full, rounded = (
        (product(device, name, *operands) - exact).std() / exact.std()
        for device in (cuda, make_cuda(precision))
    )
    assert full < 2.0**-18
    assert 2.0**-18 < rounded < 2.4 * 2.0**-bits  # 0.6 of it with rounding, 1.2 with truncation


def test_a_machine_without_cublaslt_is_an_error(cuda, monkeypatch):
    from cuda import pathfinder

    def load(name):
        raise RuntimeError(f"no {name} here")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", load)
    with pytest.raises(DeviceError, match="cuBLASLt cannot be loaded: no cublasLt here"):
        CudaDevice(0)


def test_a_missing_gpu_is_an_error(cuda):
    with pytest.raises(DeviceError, match="gpu:999 cannot be used"):
        CudaDevice(999)
    cuda.synchronize()
