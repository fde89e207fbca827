import inspect

import pytest

from hogbatch.kernels import contract, load


@pytest.mark.parametrize("name", contract.OPERATIONS)
def test_every_backend_takes_the_arguments_of_the_contract(kernels, name):
    assert arguments(getattr(kernels.module, name)) == arguments(getattr(contract.Kernels, name))


def arguments(function):
    plain = getattr(function, "py_func", function)  # what numba compiled
    return [name for name in inspect.signature(plain).parameters if name != "self"]


def test_the_list_of_operations_is_the_contract():
    members = {name for name in vars(contract.Kernels) if not name.startswith("_")}
    assert set(contract.OPERATIONS) == members


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(ValueError, match="reference, cpu, gpu; got 'tpu'"):
        load("tpu")
