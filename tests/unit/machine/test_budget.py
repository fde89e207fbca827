import pytest

from hogbatch.errors import UsageError
from hogbatch.machine import budget
from hogbatch.machine.budget import available, byte_size, require


def test_free_memory_is_the_estimate_of_the_kernel(monkeypatch):
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    monkeypatch.setattr(budget, "free_memory", lambda: 3_000_000)
    require(3_000_000, "the data", "use less")
    with pytest.raises(UsageError, match=r"expected 10 MB .* the data; got 3 MB: use less"):
        require(10_000_000, "the data", "use less")


def test_a_cgroup_may_allow_less_than_is_free(monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda: 10**12)
    monkeypatch.setattr(budget, "memory_quota", lambda: 8 * 10**9)
    with pytest.raises(UsageError, match=r"got 8 GB \(the limit of its cgroup\): use less"):
        require(12_400_000_000, "the data", "use less")


def test_a_cgroup_with_more_than_the_free_memory_has_no_effect(monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda: 10**9)
    monkeypatch.setattr(budget, "memory_quota", lambda: 10**13)
    assert available() == (10**9, "")


def test_a_full_cgroup_leaves_no_memory(monkeypatch):
    monkeypatch.setattr(budget, "memory_quota", lambda: 0)
    assert available().size == 0


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (3_420_000, "3.42 MB"),
        (999_600_000, "1 GB"),
        (12_800_000_000, "12.8 GB"),
        (2 * 10**12, "2 TB"),
    ],
)
def test_sizes_have_a_readable_unit(size, shown):
    assert byte_size(size) == shown
