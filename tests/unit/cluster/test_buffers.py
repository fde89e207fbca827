"""The memory of a merge, shared by descriptor."""

import os

import numpy as np
import pytest

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.decisions.areas import ALL, Areas, areas, areas_for_any, reductions_of
from hogbatch.cluster.decisions.reduction import ring
from hogbatch.cluster.decisions.transfers import Reduction, staging_size
from hogbatch.config.train import MAX_SERVERS
from hogbatch.errors import ProtocolError, UsageError

NAMES = ("merged", "change", "sum", "staging", "outgoing", "residual", "kept")


def test_another_process_maps_the_same_memory():
    buffers = ExchangeBuffers.create(1000)
    other = ExchangeBuffers.attach(os.dup(buffers.fd))
    for number, name in enumerate(NAMES):
        getattr(buffers, name)[:] = number
        assert (getattr(other, name) == number).all()
        assert buffers.offset(name) == other.offset(name)
    assert (other.size, other.servers) == (1000, 16)
    buffers.close()
    other.close()


def test_areas_start_on_cache_lines_and_do_not_overlap():
    buffers = ExchangeBuffers.create(997)
    for number, name in enumerate(NAMES):
        area = getattr(buffers, name)
        assert area.dtype == np.float32
        assert area.ctypes.data % 64 == 0
        assert area.ctypes.data - buffers.memory.ctypes.data == buffers.offset(name)
        area[:] = number
    assert [getattr(buffers, name).sum() for name in NAMES] == [
        number * len(getattr(buffers, name)) for number, name in enumerate(NAMES)
    ]
    buffers.close()


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("size", [1, 63, 1000, 100_000])
def test_memory_for_all_ways_is_enough_for_each(how, size):
    one, every = areas(size, 7, how), areas_for_any(size, 7, ALL)
    assert one.staging <= every.staging
    assert one.outgoing <= every.outgoing
    assert one.residual in (0, every.residual)


@pytest.mark.parametrize(("schedule", "staging"), [("ring", 0), ("halving", 500)])
def test_float32_needs_no_residual(schedule, staging):
    buffers = ExchangeBuffers.create(1000, [Reduction(schedule)], servers=4)
    assert len(buffers.residual) == len(buffers.outgoing) == 0
    assert len(buffers.staging) == staging, "for what is added to a sum of the changes of others"
    buffers.close()


@pytest.mark.parametrize("servers", range(1, 10))
def test_a_ring_needs_no_staging(servers):
    assert staging_size(ring(servers), 1000) == areas(1000, servers, Reduction("ring")).staging == 0


@pytest.mark.parametrize(
    ("transfer", "robust", "models"),
    [
        ("float32", "none", 4),
        ("bfloat16", "none", 7),
        ("top-k", "none", 12),
        ("float32", "median", 17),
    ],
)
def test_a_hundred_servers_need_memory_for_the_ways_of_the_run_only(transfer, robust, models):
    reductions = reductions_of(transfer, robust)
    assert {(each.transfer, each.robust) for each in reductions} == {(transfer, robust)}
    size = 100_000
    found = areas_for_any(size, 100, reductions)
    total = 3 * size + found.staging + found.outgoing + 2 * found.residual
    assert models - 1 < total / size < models


def test_any_number_of_servers_that_is_allowed_has_areas():
    for how in ALL:
        assert isinstance(areas(1000, MAX_SERVERS, how), Areas)


def test_an_empty_model_has_buffers_too():
    buffers = ExchangeBuffers.create(0)
    assert len(buffers.sum) == 0
    buffers.close()


def test_too_little_memory_is_a_usage_error_with_the_size():
    with pytest.raises(UsageError, match=r"the exchange segment.* TB|GB"):
        ExchangeBuffers.create(1 << 40)


def test_another_descriptor_is_refused():
    fd = os.memfd_create("other")
    with pytest.raises(ProtocolError, match="descriptor"):
        ExchangeBuffers.attach(fd)
    os.close(fd)
