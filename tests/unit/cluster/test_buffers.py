"""The memory of a merge, shared by descriptor."""

import os

import numpy as np
import pytest

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.errors import UsageError

NAMES = ("merged", "change", "sum")


def test_another_process_maps_the_same_memory():
    buffers = ExchangeBuffers.create(997)
    other = ExchangeBuffers.attach(os.dup(buffers.segment.fd), buffers.segment.layout)
    for number, name in enumerate(NAMES):
        area = getattr(buffers, name)
        assert area.dtype == np.float32 and area.ctypes.data % 64 == 0
        assert area.ctypes.data - buffers.memory.ctypes.data == buffers.offset(name)
        area[:] = number
    for number, name in enumerate(NAMES):  # areas do not overlap
        assert len(getattr(other, name)) == 997 and (getattr(other, name) == number).all()
    buffers.close()
    other.close()


def test_too_little_memory_is_a_usage_error_with_the_size():
    with pytest.raises(UsageError, match=r"the exchange segment.* TB|GB"):
        ExchangeBuffers.create(1 << 40)
