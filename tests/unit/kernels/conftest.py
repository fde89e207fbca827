import pytest

from hogbatch.kernels import BACKENDS, load
from hogbatch.kernels.gpu.device import CudaDevice, HostDevice
from hogbatch.kernels.gpu.probe import find_gpus
from tests.unit.kernels.backends import Backend

_MARKS = {"gpu": pytest.mark.gpu}


@pytest.fixture(
    scope="session", params=[pytest.param(name, marks=_MARKS.get(name, ())) for name in BACKENDS]
)
def kernels(request, missing):
    """Every backend in turn, for NumPy arrays: a test that asks for it runs once per backend."""
    name = request.param
    if name == "gpu":
        found = find_gpus()
        if not found.devices:
            missing(name, found.reason)
        device = CudaDevice(0)
        return Backend(device, device.kernels)
    try:
        return Backend(HostDevice(), load(name))
    except ImportError as absent:
        missing(name, absent)
