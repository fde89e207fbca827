"""The memory of a merge, shared by descriptor."""

import os

import numpy as np
import pytest

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.decisions.areas import areas
from hogbatch.cluster.decisions.reduction import ring
from hogbatch.cluster.decisions.transfers import staging_size
from hogbatch.errors import UsageError

NAMES = ("merged", "change", "sum", "staging", "outgoing", "residual", "kept")


def test_another_process_maps_the_same_memory():
    buffers = ExchangeBuffers.create(997, 7, "top-k")
    other = ExchangeBuffers.attach(os.dup(buffers.fd), buffers.layout)
    for number, name in enumerate(NAMES):
        area = getattr(buffers, name)
        assert area.dtype == np.float32 and area.ctypes.data % 64 == 0
        assert area.ctypes.data - buffers.memory.ctypes.data == buffers.offset(name)
        area[:] = number
    for number, name in enumerate(NAMES):  # areas do not overlap
        assert len(getattr(other, name)) and (getattr(other, name) == number).all()
    assert other.size == 997
    buffers.close()
    other.close()


@pytest.mark.parametrize(
    ("transfer", "robust", "models"),
    [
        ("float32", "none", 4),
        ("bfloat16", "none", 7),
        ("top-k", "none", 12),
        ("float32", "median", 17),
    ],
)
def test_the_memory_for_a_hundred_servers(transfer, robust, models):
    size = 100_000
    found = areas(size, 100, transfer, robust)
    total = 3 * size + found.staging + found.outgoing + 2 * found.residual
    assert models - 1 < total / size < models


@pytest.mark.parametrize("servers", [1, 2, 3, 8, 9])
def test_a_ring_needs_no_staging(servers):
    assert staging_size(ring(servers), 1000) == 0


def test_too_little_memory_is_a_usage_error_with_the_size():
    with pytest.raises(UsageError, match=r"the exchange segment.* TB|GB"):
        ExchangeBuffers.create(1 << 40, 2)
