"""The memory of a merge, shared by descriptor."""

import os

import numpy as np
import pytest

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.decisions.reduction import ring
from hogbatch.cluster.decisions.transfers import staging_size
from hogbatch.errors import UsageError

NAMES = ("merged", "change", "sum", "staging")


def test_another_process_maps_the_same_memory():
    buffers = ExchangeBuffers.create(997, 7)
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


def test_the_memory_for_a_hundred_servers():
    buffers = ExchangeBuffers.create(100_000, 100)
    assert 3 < buffers.memory.nbytes / 400_000 < 4.1
    buffers.close()


@pytest.mark.parametrize("servers", [1, 2, 3, 8, 9])
def test_a_ring_needs_no_staging(servers):
    assert staging_size(ring(servers), 1000) == 0


def test_too_little_memory_is_a_usage_error_with_the_size():
    with pytest.raises(UsageError, match=r"the exchange segment.* TB|GB"):
        ExchangeBuffers.create(1 << 40, 2)
