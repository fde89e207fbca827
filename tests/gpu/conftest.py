import pytest

from hogbatch.kernels.gpu.device import CudaDevice
from hogbatch.kernels.gpu.probe import find_gpus


@pytest.fixture(scope="session")
def cuda(missing):
    """The first GPU."""
    found = find_gpus()
    if not found.devices:
        missing("gpu", found.reason)
    return CudaDevice(0)
