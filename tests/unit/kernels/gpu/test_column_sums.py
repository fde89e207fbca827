"""The GPU kernel `sum_columns`, whose blocks may share columns; test_dense.py tests its results."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.support.kernel_cases import junk, numbers

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def backend(backend_named):
    return backend_named("gpu")


@pytest.fixture
def column_sums(backend):
    from hogbatch.kernels.gpu import dense

    return dense


def fetched(device, there):
    here = np.empty(there.shape, there.dtype)
    device.to_host(there, here)
    return here


def test_blocks_share_columns_if_there_are_enough_rows(column_sums):
    lanes, blocks = 32, 264
    enough = 2 * lanes * column_sums.ROWS_OF_A_THREAD
    for rows, parts in ((0, 1), (enough - 1, 1), (enough, 2), (10**6, blocks // 16)):
        assert column_sums.number_of_parts(rows, lanes, 16, blocks) == parts
    assert column_sums.number_of_parts(10**6, lanes, 1000, blocks) == 1


# Some of these have as many parts as `blocks` allow, others one part; most parts are unequal.
@pytest.mark.parametrize(
    ("width", "rows"), [(512, 1200), (48, 16_384), (48, 20_011), (16, 20_011), (1, 20_011)]
)
def test_parts_are_added_up_and_the_scratch_is_reusable(backend, column_sums, width, rows):
    device, random = backend.device, np.random.default_rng(1)
    sums = column_sums.ColumnSums(blocks=128)
    for each in (rows, 3, rows - 1):
        grad = numbers(random, each, width)
        out = device.to_device(junk(width))
        sums(0.5, False, device.to_device(grad), out)
        assert_array_equal(fetched(device, out), 0.5 * grad.sum(axis=0, dtype=float))


def test_captured_sums_share_the_scratch(backend, column_sums):
    device, random = backend.device, np.random.default_rng(2)
    sums = column_sums.ColumnSums(blocks=128)
    grads = [numbers(random, rows, width) for rows, width in ((2000, 48), (3000, 512))]
    there = [device.to_device(grad) for grad in grads]
    outs = [device.zeros(grad.shape[1], np.float32) for grad in grads]

    def work(number):
        return lambda: sums(1.0, True, there[number], outs[number])

    repeats = [device.capture(work(number)) for number in range(2)]  # runs each once
    for number in (0, 1, 1, 0, 1):
        repeats[number]()
    for grad, out, times in zip(grads, outs, (3, 4), strict=True):
        assert_array_equal(fetched(device, out), times * grad.sum(axis=0, dtype=float))
