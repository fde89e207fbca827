import gc
import os
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.faults import soak, target, workers
from benchmarks.faults.figures import slope, spread
from hogbatch.events.event import Goodbye, WorkerCompiles


def test_median_and_maximum():
    assert spread([3.0, 1.0, 2.0]) == {"count": 3, "median": 2.0, "p95": 2.9, "max": 3.0}
    assert spread([])["max"] is None


def test_the_error_of_a_slope_allows_for_samples_that_hang_together():
    """Random walks have no slope; three standard errors must say so far more often than not,
    and an error from all points as if they were independent would not.
    """
    x = np.arange(1000.0)
    found = slope(x, 5 + 2 * x)
    assert found.value == pytest.approx(2.0) and found.error < 1e-9
    chance = np.random.default_rng(0)
    noise = [np.repeat(chance.standard_normal(100), 10) for _ in range(60)]
    surprises = sum(abs(found.value) > 3 * found.error for found in (slope(x, y) for y in noise))
    naive = sum(abs(found.value) > 3 * found.error for found in (slope(x, y, 1000) for y in noise))
    assert surprises <= 2 < naive
    with pytest.raises(ValueError, match="at least 20 points; got 3"):
        slope([1, 2, 3], [1, 2, 3])


def test_the_figures_of_a_process():
    gc.collect()  # so that nothing is closed in between
    before = soak.sample(os.getpid())
    hold = bytearray(b"1") * (50 << 20)
    with open(os.devnull):
        after = soak.sample(os.getpid())
    assert after["resident"] - before["resident"] > 0.9 * len(hold)
    assert after["anonymous"] - before["anonymous"] > 0.9 * len(hold)
    assert after["descriptors"] == before["descriptors"] + 1 and after["threads"] >= 1


def test_an_account_is_per_hour_and_leaves_the_warm_up_out():
    grown = [
        {
            "at": float(second),
            "resident": 10**9 if second < 60 else 10**8 + 1000 * second,
            "anonymous": 10**7,
            "descriptors": 30 if second < 60 else 14,
            "threads": 4 + (second == 100),
        }
        for second in range(600)
    ]
    found = soak.account(grown, warm_up=60.0)
    assert found["resident_mb_per_hour"] == 3.6 and found["resident_standard_error"] == 0.0
    assert found["anonymous_mb_per_hour"] == 0.0
    assert found["descriptors"] == [14] and found["threads"] == [4, 5]


@pytest.mark.parametrize(
    ("rows", "inside"), [([64, 128], True), ([0, 128], False), ([128, 256], False)]
)
def test_rows_are_done_again_by_leases_within_them(rows, inside):
    assert workers.within(rows, [64, 200]) == inside


def test_wall_seconds_are_from_the_first_to_the_last():
    events = [Goodbye("a", at=1.0), WorkerCompiles("a", at=2.0), Goodbye("a", at=5.0)]
    assert target.first(events, Goodbye) == 1.0 and target.last(events, Goodbye) == 5.0


def test_kills_of_workers_without_a_lease_are_recorded_but_not_counted(monkeypatch):
    """Without processes: the kills of a run are those of this list."""
    kills = [[], [[0, 64]], [], [[64, 128]]]
    delays = dict.fromkeys(("detected", "given back", "training again"), 0.1)
    run = SimpleNamespace(
        job=SimpleNamespace(summary=lambda: {"rows": 0}),
        start=lambda *flags: None,
        wait_for=lambda condition, what: None,
        next_life=list,
        leftovers=list,
        interrupt=lambda: 130,
        model_is_finite=lambda: True,
    )

    def kill(run, rng):
        reissued = kills.pop(0)
        again = 0.2 if reissued else None
        return {"reissued": reissued, "first again": again, "done again": again, **delays}

    monkeypatch.setattr(workers, "watched", lambda: nullcontext(run))
    monkeypatch.setattr(workers, "shared_parameters", lambda run: np.zeros(1))
    monkeypatch.setattr(workers, "kill", kill)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    found = workers.measure(times=2, seed=0)
    assert (found["kills"], found["without_lease"]) == (4, 2)
    assert found["seconds"]["done again"]["count"] == 2
    monkeypatch.setattr(workers, "LEASE_WITHIN_S", -1.0)
    with pytest.raises(RuntimeError, match="no killed worker held a lease"):
        workers.measure(times=1, seed=0)
