import pytest

from hogbatch.errors import UsageError
from hogbatch.machine import budget, linux
from hogbatch.machine.budget import available, byte_size, require


@pytest.mark.parametrize(
    ("free", "quota", "size", "shown"),
    [
        (3_000_000, None, 3_000_000, "3 MB"),
        (10**12, 8 * 10**9, 8 * 10**9, r"8 GB \(the limit of its cgroup\)"),
        (10**9, 10**13, 10**9, "1 GB"),
        (10**9, 0, 0, r"0 B \(the limit of its cgroup\)"),
    ],
)
def test_memory_is_limited_by_the_machine_or_the_cgroup(monkeypatch, free, quota, size, shown):
    monkeypatch.setattr(budget, "SMALL", 0)
    monkeypatch.setattr(budget, "address_space_left", lambda: None)
    monkeypatch.setattr(budget, "free_memory", lambda: free)
    monkeypatch.setattr(budget, "memory_quota", lambda: quota)
    assert available().size == size
    require(size, "the data", "use less")
    with pytest.raises(UsageError, match=f"expected .* for the data; got {shown}: use less"):
        require(size + 1, "the data", "use less")


def test_memory_is_limited_by_the_address_space(monkeypatch):
    limit = 1 << 40
    monkeypatch.setattr(linux.resource, "getrlimit", lambda which: (limit, limit))
    left = linux.address_space_left()
    assert 0 < left < limit, "what this process has mapped is subtracted"
    monkeypatch.setattr(budget, "SMALL", 0)
    monkeypatch.setattr(budget, "address_space_left", lambda: 1000)
    with pytest.raises(UsageError, match=r"got 1 kB \(the limit of ulimit -v\): use less"):
        require(1001, "the data", "use less")


def test_a_small_allocation_is_not_checked(monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda: 0)
    require(budget.SMALL, "the data", "use less")
    with pytest.raises(UsageError, match="got 0 B: use less"):
        require(budget.SMALL + 1, "the data", "use less")


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        *((0, "0 B"), (999, "999 B"), (1000, "1 kB"), (3_420_000, "3.42 MB")),
        *((999_600_000, "1 GB"), (12_800_000_000, "12.8 GB"), (2 * 10**12, "2 TB")),
    ],
)
def test_sizes_have_a_readable_unit(size, shown):
    assert byte_size(size) == shown
