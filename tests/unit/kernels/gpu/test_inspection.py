"""Properties of usable GPUs, with a stand-in for CuPy."""

import sys

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.kernels.gpu import inspection
from hogbatch.kernels.gpu.inspection import inspect, inspect_gpus
from tests.unit.kernels.gpu.test_probe import FakeCupy, installed


class FakeRuntime(FakeCupy):
    """The part of CuPy that the inspection uses in addition."""

    def setDevice(self, ordinal):
        self.ordinal = ordinal

    def hostRegister(self, address, size, flags):
        assert address and size and flags == 3
        self.answer(f"pin {self.ordinal}")
        self.registered = address

    def hostUnregister(self, address):
        assert address == self.registered


@pytest.fixture
def cupy(monkeypatch):
    def put_in(**options):
        installed(monkeypatch, "cupy-cuda12x")
        monkeypatch.setitem(sys.modules, "cupy", FakeRuntime(**options))

    return put_in


def test_memory_that_cannot_be_pinned_is_reported_for_its_gpu(cupy):
    cupy(count=2, failures={"pin 1": RuntimeError("cudaErrorMemoryAllocation: no\nmore")})
    assert [gpu.pinning_error for gpu in inspect().devices] == [
        None,
        "cudaErrorMemoryAllocation: no",
    ]


def test_without_cupy_no_process_is_started(monkeypatch):
    monkeypatch.setattr(inspection.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert inspect_gpus(WITHIN_S) is None
