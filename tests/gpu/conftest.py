import pytest

from hogbatch.kernels.gpu.cuda_device import CudaDevice


@pytest.fixture(scope="session")
def make_cuda(missing, gpus):
    """A function that returns the first GPU with the given precision of matrix products."""
    found = gpus()
    if not found.devices:
        missing("gpu", found.reason)

    def make(precision="float32"):
        device = CudaDevice(0, precision)
        device.warm_up_seconds = device.measured_seconds = 0.0  # no test needs exact speeds
        device.enter()
        return device

    return make


@pytest.fixture(scope="session")
def cuda(make_cuda):
    """The first GPU."""
    return make_cuda()
