"""The benchmark of merges: its checks and its figures, without its processes."""

import numpy as np
import pytest

from benchmarks.merges.__main__ import predicted, results_of, table
from benchmarks.merges.contract import WrongSum, check_everything, merge_at, places


class FakeMember:
    """Knows the change of the other member; `error` is added to the sum."""

    def __init__(self, place, count=1000, error=0.0):
        self.change, self.total = np.zeros(count, np.float32), np.zeros(count, np.float32)
        self.place, self.error = place, error

    def merge(self, number):
        other = np.zeros_like(self.change)
        here = places(len(other))
        other[here] = np.arange(len(here)) + 1000 * number + 10 * (1 - self.place)
        self.total[:] = self.change + other
        self.total[-1] += self.error


class FullMember(FakeMember):
    """The same for the check of all parameters."""

    def merge(self, number):
        other = np.random.default_rng(1 - self.place).random(len(self.change), np.float32)
        self.total[:] = self.change + other
        self.total[3] += self.error


@pytest.mark.parametrize("place", [0, 1])
def test_a_right_sum_passes(place):
    assert merge_at(FakeMember(place), place, 7, at=0.0) > 0.0
    check_everything(FullMember(place), place, 1)


def test_a_wrong_sum_is_found():
    with pytest.raises(WrongSum):
        merge_at(FakeMember(0, error=1.0), 0, 7, at=0.0)
    with pytest.raises(WrongSum, match="1 of 1000"):
        check_everything(FullMember(1, error=1.0), 1, 1)


def test_a_merge_is_predicted_from_transfers():
    transfers = [(size, 1e-3 + size / 1e10) for size in (1000, 1_000_000, 30_000_000)]
    link = predicted(transfers, 16_000_000)
    assert link["latency_us"] == pytest.approx(1000, rel=0.01)
    assert link["gigabytes_per_second"] == pytest.approx(10, rel=0.01)
    assert link["predicted_ms"] == pytest.approx(2 + 6.4 + 6.4, rel=0.01)  # 32 MB at 5 GB/s


def test_results_and_their_table():
    times = {"nixl": [10.0, 12.0, 14.0], "ray": [36.0]}
    transfers = {"nixl": [(1000, 1e-3), (1_000_000, 2e-3)], "ray": []}
    tuned = {"nixl": ({}, []), "ray": ({"pieces": 1}, [])}
    ours, ray = results_of(times, transfers, tuned, 1000)
    assert (ours["ms"], ours["over"], ray["over"]) == (12.0, 1.0, 3.0)
    assert ours["predicted_over_measured"] == pytest.approx(ours["link"]["predicted_ms"] / 12.0)
    assert "| ray | 36 | 36..36 | 3 | - | - |" in table([ours, ray])
