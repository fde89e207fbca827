import inspect

import pytest

from hogbatch.kernels import contract, load
from hogbatch.kernels.gpu import contract as device_contract
from tests.support.operations import operations


@pytest.mark.parametrize("name", operations(contract.Kernels))
def test_every_backend_takes_the_arguments_of_the_contract(kernels, name):
    assert arguments(getattr(kernels.module, name)) == arguments(getattr(contract.Kernels, name))


@pytest.mark.parametrize("name", operations(device_contract.ReplicaKernels))
def test_the_backend_of_every_device_exchanges_replicas(device_kernels, name):
    declared = getattr(device_contract.ReplicaKernels, name)
    assert arguments(getattr(device_kernels.module, name)) == arguments(declared)


@pytest.mark.parametrize("name", operations(device_contract.StagingKernels))
def test_the_backend_of_every_device_stages_rows(device_kernels, name):
    declared = getattr(device_contract.StagingKernels, name)
    assert arguments(getattr(device_kernels.module, name)) == arguments(declared)


def arguments(function):
    plain = getattr(function, "py_func", function)  # what numba compiled
    return [name for name in inspect.signature(plain).parameters if name != "self"]


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(ValueError, match="reference, cpu; got 'tpu'"):
        load("tpu")
