"""Memory that is pinned for usable GPUs, with a stand-in for CuPy."""

import sys

import pytest

from hogbatch.kernels.gpu.probe import probe
from tests.unit.kernels.gpu.test_probe import FakeCupy, installed


class FakeRuntime(FakeCupy):
    """The part of CuPy that pinning uses in addition."""

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
    errors = [gpu.pinning_error for gpu in probe(pin=True).devices]
    assert errors == [None, "cudaErrorMemoryAllocation: no"]
