from functools import cache

import pytest

from hogbatch.kernels.gpu.cuda_device import CudaDevice
from hogbatch.kernels.gpu.device import HostDevice
from tests.support import cpu_operations
from tests.support.kernel_backends import Backend

REFERENCE = pytest.param("reference", marks=pytest.mark.no_own_indices)  # NumPy checks indices
GPU = pytest.param("gpu", marks=pytest.mark.gpu)


@pytest.fixture(scope="session")
def cached_backend(missing, gpus):
    """A function that returns a backend for NumPy arrays, or skips the test if unavailable."""

    @cache
    def make(name):
        if name != "gpu":
            numpy_kernels = HostDevice.kernels
            return Backend(HostDevice(), numpy_kernels if name == "reference" else cpu_operations)
        found = gpus()
        if not found.devices:
            missing(name, found.reason)
        device = CudaDevice(0)
        return Backend(device, device.kernels)

    return make


@pytest.fixture(scope="module")
def backend_named(cached_backend):
    """The same with a stream, because graphs cannot be captured on the default stream.

    For each module, because the stream of a device that another module made no longer exists.
    """

    def make(name):
        backend = cached_backend(name)
        backend.device.enter()
        return backend

    return make


@pytest.fixture(scope="module", params=[REFERENCE, "cpu", GPU])
def kernels(request, backend_named):
    """Each backend and the functions of CPU loops; a test with this fixture runs once for each."""
    return backend_named(request.param)


@pytest.fixture(scope="module", params=[REFERENCE, GPU])
def device_kernels(request, backend_named):
    """The backends of devices, which implement all of `DeviceKernels`."""
    return backend_named(request.param)
