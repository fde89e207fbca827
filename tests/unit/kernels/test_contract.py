import inspect

import pytest

from hogbatch.kernels.gpu.reference import DeviceKernels
from hogbatch.kernels.reference import Kernels
from tests.support.operations import operations


@pytest.mark.gpu
@pytest.mark.parametrize("base", [Kernels, DeviceKernels])
def test_the_gpu_backend_overrides_every_operation_with_the_same_arguments(backend_named, base):
    """One that it inherits would run NumPy on arrays of the GPU."""
    overriding = type(backend_named("gpu").module)
    for operation in operations(base):
        own, of_base = getattr(overriding, operation), getattr(base, operation)
        assert own is not of_base, operation
        assert list(inspect.signature(own).parameters) == list(
            inspect.signature(of_base).parameters
        ), operation
