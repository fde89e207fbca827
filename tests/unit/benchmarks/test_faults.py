import math
import os
import random
import subprocess
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import benchmarks.faults.__main__ as faults
from benchmarks.faults import coordinators, soak, target, workers
from benchmarks.faults.figures import slope, spread


def test_median_and_maximum():
    assert spread([3.0, 1.0, 2.0]) == {"count": 3, "median": 2.0, "p95": 2.9, "max": 3.0}
    assert spread([])["max"] is None


def test_a_slope_through_a_line_is_exact():
    x = np.arange(100.0)
    found = slope(x, 5 + 2 * x)
    assert math.isclose(found.value, 2.0) and found.error < 1e-9


def test_the_error_of_a_slope_allows_for_samples_that_hang_together():
    """Random walks have no slope; three standard errors must say so far more often than not,
    and an error from all points as if they were independent would not.
    """
    chance = np.random.default_rng(0)
    x = np.arange(1000.0)
    noise = [np.repeat(chance.standard_normal(100), 10) for _ in range(60)]
    surprises = sum(abs(found.value) > 3 * found.error for found in (slope(x, y) for y in noise))
    naive = sum(abs(found.value) > 3 * found.error for found in (slope(x, y, 1000) for y in noise))
    assert surprises <= 2 < naive


def test_too_few_points_have_no_slope():
    with pytest.raises(ValueError, match="at least 20 points; got 3"):
        slope([1, 2, 3], [1, 2, 3])


GROWS = """
import os, threading
input()
hold, file = bytearray(b"1") * (50 << 20), open(os.devnull)
threading.Thread(target=threading.Event().wait, daemon=True).start()
input("grown\\n")
"""


def test_the_figures_of_a_process():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", "print(flush=True)" + GROWS], **pipes) as process:
        process.stdout.readline()
        before = soak.sample(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"grown\n"
        after = soak.sample(process.pid)
        process.kill()
    assert 50e6 < after["resident"] - before["resident"] < 60e6
    assert 50e6 < after["anonymous"] - before["anonymous"] < 60e6
    assert after["descriptors"] == before["descriptors"] + 1
    assert after["threads"] == before["threads"] + 1


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


def test_rows_are_done_again_by_leases_within_them():
    assert workers.within({"rows": [64, 128]}, [64, 200])
    assert not workers.within({"rows": [0, 128]}, [64, 200])
    assert not workers.within({"rows": [128, 256]}, [64, 200])


@pytest.mark.parametrize(
    ("arguments", "module", "given"),
    [
        (["workers", "--times", "3"], workers, (3, 0)),
        (["coordinators", "--times", "2", "--epochs", "9"], coordinators, (2, 0, 9)),
        (["target", "--seeds", "2", "--every", "1"], target, (2, 60.0, 1.0)),
        (["soak", "--seconds", "5", "--flags", "--lr 0.1"], soak, (5.0, 60.0, ("--lr", "0.1"))),
    ],
)
def test_a_question_is_a_command(monkeypatch, tmp_path, capsys, arguments, module, given):
    asked = []
    monkeypatch.setattr(module, "measure", lambda *a: asked.append(a) or {"kills": 7, "all": [1]})
    faults.main([*arguments, "--json", str(tmp_path / "out.json")])
    assert asked == [given]
    assert capsys.readouterr().out == '{\n  "kills": 7\n}\n'
    assert '"all"' in (tmp_path / "out.json").read_text()


class FakeRun:
    """Ends after `lives` waits."""

    def __init__(self, lives, pids):
        self.left, self.pids, self.waits = lives, pids, []

    def ends_within(self, seconds):
        self.waits.append(seconds)
        self.left -= 1
        return self.left < 0

    def at_work(self):
        return self.pids


def test_workers_are_killed_until_the_run_has_ended(monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    run = FakeRun(3, {"cpu-0": 11, "cpu-1": 12})
    assert target.strike(run, random.Random(0), seconds=60.0, every=2.0) == 3 == len(killed)
    assert set(killed) <= {11, 12} and run.waits == [2.0] * 4


def test_killing_ends_after_its_time(monkeypatch):
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    run = FakeRun(100, {"cpu-0": 11})
    assert target.strike(run, random.Random(0), seconds=6.0, every=2.0) == 3


def test_wall_seconds_are_from_the_first_to_the_last():
    events = [{"event": name, "at": at} for name, at in (("a", 1.0), ("b", 2.0), ("a", 5.0))]
    assert target.first(events, "a") == 1.0 and target.last(events, "a") == 5.0


class IdleRun:
    """A run without processes."""

    def __init__(self):
        self.job = SimpleNamespace(summary=lambda: {"rows": 0})

    def start(self, *flags):
        pass

    def wait_for(self, condition, what):
        pass

    def next_life(self):
        return []

    def leftovers(self):
        return []

    def interrupt(self):
        return 130

    def model_is_finite(self):
        return True


@pytest.fixture
def kills(monkeypatch):
    """No processes: the kills of a run are those of this list."""
    kills = []
    delays = dict.fromkeys(("detected", "given back", "training again"), 0.1)

    def kill(run, rng):
        reissued = kills.pop(0)
        again = 0.2 if reissued else None
        return {"reissued": reissued, "first again": again, "done again": again, **delays}

    monkeypatch.setattr(workers, "watched", lambda: nullcontext(IdleRun()))
    monkeypatch.setattr(workers, "shared_parameters", lambda run: np.zeros(1))
    monkeypatch.setattr(workers, "kill", kill)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return kills


def test_kills_of_workers_without_a_lease_are_recorded_but_not_counted(kills):
    kills += [[], [[0, 64]], [], [[64, 128]]]
    found = workers.measure(times=2, seed=0)
    assert (found["kills"], found["without_lease"]) == (4, 2)
    assert found["seconds"]["done again"]["count"] == 2


def test_workers_that_never_hold_a_lease_are_an_error(kills, monkeypatch):
    monkeypatch.setattr(workers, "LEASE_WITHIN_S", -1.0)
    with pytest.raises(RuntimeError, match="no killed worker held a lease"):
        workers.measure(times=1, seed=0)
