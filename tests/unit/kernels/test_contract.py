import inspect

import pytest

from hogbatch.kernels import contract, load
from hogbatch.kernels.gpu import contract as device_contract
from tests.support.operations import operations


def test_every_backend_takes_the_arguments_of_the_contract(kernels):
    assert arguments(kernels.module, contract.Kernels) == arguments(contract.Kernels)


@pytest.mark.parametrize(
    "protocol", [device_contract.ReplicaKernels, device_contract.StagingKernels]
)
def test_the_backend_of_every_device_does_so_too(device_kernels, protocol):
    assert arguments(device_kernels.module, protocol) == arguments(protocol)


def arguments(module, protocol=None):
    """The names of the arguments of each operation of a protocol."""
    found = {}
    for operation in operations(protocol or module):
        function = getattr(module, operation)
        plain = getattr(function, "py_func", function)  # what numba compiled
        names = inspect.signature(plain).parameters
        found[operation] = [name for name in names if name != "self"]
    return found


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(ValueError, match="reference, cpu; got 'tpu'"):
        load("tpu")
