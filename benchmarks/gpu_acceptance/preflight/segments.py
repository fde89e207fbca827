"""A segment as a run creates it, registered with the device, copied and added to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_acceptance.preflight.gpu import Gpu
from benchmarks.gpu_acceptance.record import one_line
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.fence import Fences
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment

PARAMETERS, ROWS = 2_000_003, 500_001  # neither fills its last page
PORTABLE = 1  # of cudaHostRegister


@contextmanager
def shared_segment(quick: bool) -> Iterator[Segment]:
    """A model with two optimizer slots, epoch orders and fences, with random contents."""
    parameters, rows = (PARAMETERS // 100, ROWS // 100) if quick else (PARAMETERS, ROWS)
    model, orders = SharedModel.fields(parameters, 2), EpochOrders.fields(rows)
    segment = Segment.create("acceptance", arrange(model, orders, Fences.fields()))
    random = np.random.default_rng(0)
    for name in model.keys() | orders.keys():
        segment.array(name)[...] = random.integers(0, 1 << 20, segment.array(name).shape)
    try:
        yield segment
    finally:
        segment.close()


def registered(gpu: Gpu) -> dict[str, Any]:
    """Copies of all arrays while the model is registered; RuntimeError if any is wrong.

    A copy fails if it spans registered and unregistered memory.
    """
    with shared_segment(gpu.quick) as segment:
        model = SharedModel.of(segment)
        memory = model.memory
        pinned = gpu.device.pin(memory)
        try:
            names = ("model/params", "model/first", "model/second", "order/even", "order/odd")
            wrong = {name: problem(gpu, segment.array(name)) for name in names}
            wrong["mapped add"] = mapped_add(gpu, model.params) if pinned else "not registered"
        finally:
            gpu.device.unpin(memory)
        wrong["registration"] = "" if pinned else refusal(gpu, memory)
        del model, memory
    return verdict(wrong)


def data(gpu: Gpu) -> dict[str, Any]:
    """Copies from a segment as that of the data, by its read-only and by its registered mapping.

    RuntimeError if one is wrong, or the mapping for the device cannot be registered.
    """
    with shared_segment(gpu.quick) as segment:
        attached = Segment.attach(os.dup(segment.fd), segment.layout, writable=False)
        memory = attached.map_for_device()
        pinned = gpu.device.pin(memory)
        try:
            wrong = {"read-only mapping": problem(gpu, attached.array("order/even"))}
            wrong["mapping for the device"] = problem(gpu, memory)
        finally:
            gpu.device.unpin(memory)
            attached.close()
        wrong["registration"] = "" if pinned else refusal(gpu, memory)
        del memory
    return verdict(wrong)


def verdict(wrong: dict[str, str]) -> dict[str, Any]:
    """What was found equal; RuntimeError with what went wrong, if anything."""
    if any(wrong.values()):
        raise RuntimeError("; ".join(f"{name}: {text}" for name, text in wrong.items() if text))
    return {"registered": True, "equal": list(wrong)}


def problem(gpu: Gpu, array: NDArray[Any]) -> str:
    """Copy an array to the device and back; what went wrong, or an empty text."""
    try:
        there, back = gpu.device.to_device(array), np.empty_like(array)
        gpu.device.to_host(there, back)
    except Exception as error:
        return one_line(error)
    differ = int((back != array).sum())
    return f"{differ} of {array.size} numbers differ" if differ else ""


def mapped_add(gpu: Gpu, params: NDArray[np.float32]) -> str:
    """Let the device add ones to the registered parameters; what went wrong, or an empty text."""
    try:
        if (mapped := gpu.device.mapped(params)) is None:
            return "the device cannot use the addresses of the host"
        before, ones = params.copy(), np.ones_like(params)
        change = gpu.device.to_device(ones)
        seen, pulled = gpu.cupy.zeros((2, *change.shape), np.float32)
        gpu.device.kernels.add(1.0, 0.0, seen, change, mapped, pulled)
        gpu.device.synchronize()
    except Exception as error:
        return one_line(error)
    differ = int((params != before + ones).sum())
    return f"{differ} of {params.size} sums differ" if differ else ""


def refusal(gpu: Gpu, memory: NDArray[np.uint8]) -> str:
    """The error of CUDA when memory cannot be registered, which `pin` does not tell."""
    try:
        gpu.cupy.cuda.runtime.hostRegister(memory.ctypes.data, memory.nbytes, PORTABLE)
    except Exception as error:
        return one_line(error)
    gpu.device.unpin(memory)
    return "registered, but not as mapped memory"
