import inspect

import pytest

from hogbatch.kernels import contract
from hogbatch.kernels.gpu import contract as device_contract
from tests.support.operations import operations


@pytest.mark.parametrize(
    "protocol", [contract.Kernels, device_contract.ReplicaKernels, device_contract.StagingKernels]
)
def test_every_backend_takes_the_arguments_of_the_contract(device_kernels, protocol):
    for operation in operations(protocol):
        taken = inspect.signature(getattr(device_kernels.module, operation)).parameters
        expected = inspect.signature(getattr(protocol, operation)).parameters
        assert list(taken) == [name for name in expected if name != "self"], operation
