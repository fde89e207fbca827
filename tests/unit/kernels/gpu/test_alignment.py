"""Kernels that read 16 bytes at a time where they can; parts of scratch arrays begin anywhere."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import RELU, SGD, Hyper
from hogbatch.kernels.reference import NUMPY_KERNELS

ROWS, WIDTH = 3, 22
HYPER = Hyper(rate=3.0, l2=0.0, momentum=0.0, beta2=0.0, epsilon=0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("skipped", [0, 1, 4])
def test_arrays_may_begin_at_any_float(backend_named, skipped):
    gpu, random = backend_named("gpu"), np.random.default_rng(1)
    here = [random.random((ROWS, WIDTH), np.float32) - np.float32(0.5) for _ in range(2)]
    there = []
    for each in here:
        space = gpu.device.zeros(skipped + each.size, np.float32)
        gpu.device.copy_into(space[skipped:], each.ravel())
        there.append(space[skipped:].reshape(each.shape))
    for values, grad, backend in ((*here, NUMPY_KERNELS), (*there, gpu.module)):
        backend.activate_backward(RELU, values, grad)
        backend.bound_rows(SGD, HYPER, ROWS, values, grad)
    found = np.empty_like(here[1])
    gpu.device.to_host(there[1], found)
    assert_allclose(found, here[1], rtol=1e-5)
    assert_array_equal(found == 0, here[0] <= 0)
