import queue
import threading

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.errors import UsageError
from hogbatch.events.event import Goodbye
from hogbatch.views.trackers import tracking
from hogbatch.views.trackers.tracking import Tracking, run_result
from tests.support.tracked_runs import described, evaluation, worker

SUMMARY = {"status": "stopped", "reason": "interrupted"}
SUMMARY |= {"validation": {"loss": 0.2}, "test": {"loss": 0.25}}


class ToldTracker:
    """A tracker that remembers its calls, waits where `gate` is closed, and fails at `broken`."""

    def __init__(self, broken="", note=""):
        self.calls = []
        self.gate = threading.Event()
        self.gate.set()
        self.logged = queue.SimpleQueue()
        self.note, self._broken = note, broken

    def __call__(self, run):
        self._call("begin", run)
        return self

    def log(self, point):
        self._call("log", *point)
        self.logged.put(point.step)

    def close(self, result):
        self._call("close", result)

    def _call(self, name, *arguments):
        assert self.gate.wait(WITHIN_S)
        self.calls.append((name, *arguments))
        if name == self._broken:
            raise ValueError("no.\nsuch host")


@pytest.fixture
def track(tmp_path, monkeypatch):
    """Create a Tracking with the given trackers, and the list of what it says."""

    def create(*trackers, **options):
        named = {f"t{number}": tracker for number, tracker in enumerate(trackers)}
        monkeypatch.setattr(tracking, "tracker_class", named.get)
        monkeypatch.setattr(tracking, "PATIENCE_S", WITHIN_S)
        said = []
        return Tracking(list(named), described(tmp_path), said.append, **options), said

    return create


def names(tracker):
    return [call[0] for call in tracker.calls]


def test_a_tracker_is_told_everything_in_order(track):
    tracker = ToldTracker()
    run, said = track(tracker, reached=(1.0, 50))
    with run:
        run.event(evaluation(100), [worker()])
        run.event(evaluation(200, seconds=3.0), [worker()])
        run.conclude(SUMMARY)
    assert names(tracker) == ["begin", "log", "log", "close"] and said == []
    assert [call[1] for call in tracker.calls[1:3]] == [100, 200]
    assert [call[3]["progress/rows_per_second"] for call in tracker.calls[1:3]] == [50.0, 100.0]
    assert tracker.calls[-1][1] == {
        "result/status": "stopped",
        "result/reason": "interrupted",
        "result/validation_loss": 0.2,
        "result/test_loss": 0.25,
    }


def test_a_slow_tracker_delays_neither_the_run_nor_another_one(track):
    slow, fast = ToldTracker(), ToldTracker()
    slow.gate.clear()
    run, _ = track(slow, fast)
    with run:
        for rows in range(1, 501):
            run.event(evaluation(rows), [worker()])
        assert fast.logged.get(timeout=WITHIN_S) == 1 and slow.calls == []
        run.conclude(SUMMARY)
        slow.gate.set()
    assert len(slow.calls) == len(fast.calls) == 502


@pytest.mark.parametrize("broken", ["begin", "log", "close"])
def test_a_failing_tracker_says_so_once_and_others_continue(track, broken):
    failing, working = ToldTracker(broken), ToldTracker()
    run, said = track(failing, working)
    with run:
        run.event(evaluation(100))
        run.event(evaluation(200))
        run.conclude(SUMMARY)
    assert said == ["the t0 tracker has stopped: ValueError: no; the values are in events.jsonl"]
    assert names(failing)[-1] == broken and names(failing).count(broken) == 1
    assert names(working) == ["begin", "log", "log", "close"]


def test_the_wait_at_the_end_is_bounded(track, monkeypatch):
    slow, fast = ToldTracker(), ToldTracker()
    slow.gate.clear()
    run, said = track(slow, fast)
    with run:
        run.event(evaluation(100))
        assert fast.logged.get(timeout=WITHIN_S) == 100
        run.conclude(SUMMARY)
        (held, ended) = run._feeds
        ended.put({"result/status": "finished"})
        assert ended.done.wait(WITHIN_S)
        monkeypatch.setattr(tracking, "PATIENCE_S", 0.0)
    slow.gate.set()
    assert said == ["t0: not all values were sent; they are in events.jsonl"]
    assert held.done.wait(WITHIN_S)


def test_ctrl_c_ends_the_wait(track, monkeypatch):
    slow = ToldTracker()
    slow.gate.clear()
    run, said = track(slow)

    def interrupted(timeout):
        raise KeyboardInterrupt

    with run:
        run.conclude(SUMMARY)
        monkeypatch.setattr(run._feeds[0].done, "wait", interrupted)
    slow.gate.set()
    assert said == ["t0: not all values were sent; they are in events.jsonl"]


def test_what_a_tracker_says_at_the_start_is_printed_and_how_the_run_ended_logged(track, tmp_path):
    model = tmp_path / "model.safetensors"
    model.touch()
    tracker = ToldTracker(note="t0: run 7 at https://host")
    run, said = track(tracker)
    with pytest.raises(UsageError), run:
        run.event(evaluation(100))
        assert tracker.logged.get(timeout=WITHIN_S) == 100
        run.event(Goodbye("cpu-0"))
        assert said == ["t0: run 7 at https://host"]
        raise UsageError("no workers are left")
    result = {"result/status": "failed", "result/reason": "no workers are left"}
    assert tracker.calls[-1] == ("close", result | {"result/model": str(model)})


@pytest.mark.parametrize(
    ("summary", "error", "status", "reason"),
    [
        ({**SUMMARY, "status": "target", "reason": "0.1"}, None, "target", "0.1"),
        ({**SUMMARY, "status": "finished"}, UsageError("diverged"), "failed", "diverged"),
        (None, KeyboardInterrupt(), "stopped", "interrupted"),
        (None, ZeroDivisionError(), "failed", "ZeroDivisionError"),
    ],
)
def test_the_status_follows_from_the_summary_and_the_error(summary, error, status, reason):
    result = run_result(summary, error)
    assert (result["result/status"], result["result/reason"]) == (status, reason)
    assert result.get("result/test_loss") == (0.25 if summary else None)
