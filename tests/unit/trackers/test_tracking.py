import threading
import time

import pytest

from benchmarks.common.job import WITHIN_S, wait_for
from hogbatch.errors import UsageError
from hogbatch.trackers import tracking
from hogbatch.trackers.base import MAX_POINTS, RunResult
from hogbatch.trackers.tracking import Tracking, run_result
from tests.support.tracked_runs import described, evaluation, totals, worker

SUMMARY = {"status": "stopped", "reason": "interrupted", "test": {"loss": 0.25}}


class ToldTracker:
    """A tracker that remembers its calls, waits where `gate` is closed, and fails at `broken`."""

    def __init__(self, broken="", sentence=""):
        self.calls = []
        self.gate = threading.Event()
        self.gate.set()
        self.abandoned = threading.Event()
        self._broken, self._sentence = broken, sentence

    def start(self, run):
        self._call("start", run)
        return self._sentence

    def log(self, points):
        for step, seconds, values in points:
            self._call("log", step, seconds, values)

    def finish(self, result):
        self._call("finish", result)

    def abandon(self):
        self.abandoned.set()
        self.gate.set()

    def _call(self, name, *arguments):
        assert self.gate.wait(WITHIN_S)
        if self.abandoned.is_set():
            raise RuntimeError("abandoned")
        self.calls.append((name, *arguments))
        if name == self._broken:
            raise ValueError("no\nsuch host")


@pytest.fixture
def track(tmp_path, monkeypatch):
    """Create a Tracking with the given trackers, and the list of what it says."""

    def create(*trackers, **options):
        waiting = iter(trackers)
        monkeypatch.setattr(tracking, "tracker_for_run", lambda name: next(waiting))
        said = []
        names = [f"t{number}" for number in range(len(trackers))]
        return Tracking(names, described(tmp_path), said.append, **options), said

    return create


def test_a_tracker_is_told_everything_in_order(track):
    tracker = ToldTracker()
    run, said = track(tracker, reached=(1.0, 50))
    with run:
        run.report(evaluation(100), totals(worker()))
        run.report(evaluation(200), totals(worker(), rows=200))
        run.conclude(SUMMARY)
    names = [call[0] for call in tracker.calls]
    assert names == ["start", "log", "log", "finish"] and said == []
    assert [call[1] for call in tracker.calls[1:3]] == [100, 200]
    assert [call[3]["progress/rows_per_second"] for call in tracker.calls[1:3]] == [50.0, 50.0]
    assert tracker.calls[-1][1] == RunResult("stopped", "interrupted", 0.25, None)


def test_who_reports_does_not_wait_for_a_tracker(track):
    slow = ToldTracker()
    slow.gate.clear()
    run, _ = track(slow)
    with run:
        for rows in range(1, 501):
            run.report(evaluation(rows), totals(*(worker(f"cpu-{n}") for n in range(8))))
        assert slow.calls == []  # it still waits in its first call
        slow.gate.set()
    assert len(slow.calls) == 502


def test_a_failing_tracker_says_so_once_and_others_continue(track):
    failing, working = ToldTracker(broken="log"), ToldTracker()
    run, said = track(failing, working)
    with run:
        run.report(evaluation(100), totals())
        assert failing.abandoned.wait(WITHIN_S)
        until = time.monotonic() + WITHIN_S
        while not said and time.monotonic() < until:
            run.event({"event": "lease"})
        run.report(evaluation(200), totals())
    assert said == [
        "the t0 tracker has stopped: ValueError: no; training continues; the values are in "
        "events.jsonl"
    ]
    assert [call[0] for call in working.calls] == ["start", "log", "log", "finish"]


def test_evaluations_that_wait_are_given_together(track):
    sizes = []

    class Together(ToldTracker):
        def log(self, points):
            sizes.append(len(points))

    slow = Together()
    slow.gate.clear()
    run, _ = track(slow)
    with run:
        for rows in range(1, MAX_POINTS + 11):
            run.report(evaluation(rows), totals())
        slow.gate.set()
    assert sizes == [MAX_POINTS, 10]


def test_a_tracker_that_fails_at_the_end_does_not_promise_that_training_continues(track):
    run, said = track(ToldTracker(broken="finish"))
    with run:
        pass
    assert said == ["the t0 tracker has stopped: ValueError: no; the values are in events.jsonl"]


def test_the_wait_at_the_end_is_bounded(track):
    slow = ToldTracker()
    run, said = track(slow, patience_s=0.0)
    with run:
        run.report(evaluation(100), totals())
        (delivery,) = run._deliveries
        wait_for(lambda: delivery.stored, "the first evaluation is stored")
        slow.gate.clear()
        run.report(evaluation(200), totals())
        run.report(evaluation(300), totals())
    assert slow.abandoned.is_set() and "finish" not in [call[0] for call in slow.calls]
    assert said[0].startswith("sending the last values to t0, for at most 0 s")
    assert said[1:] == [
        "t0: the result and 2 of 3 evaluations were not sent; they are in events.jsonl"
    ]


def test_what_a_tracker_says_at_the_start_is_printed(track):
    run, said = track(ToldTracker(sentence="t0: run 7 at https://host"))
    with run:
        pass
    assert said == ["t0: run 7 at https://host"]


def test_a_run_that_ends_with_an_error_is_told_to_trackers(track):
    tracker = ToldTracker()
    run, _ = track(tracker)
    with pytest.raises(UsageError), run:
        raise UsageError("no workers are left")
    assert tracker.calls[-1] == ("finish", RunResult("failed", "no workers are left"))


@pytest.mark.parametrize(
    ("summary", "error", "status"),
    [
        ({**SUMMARY, "status": "target"}, None, "target"),
        (SUMMARY, None, "stopped"),
        ({**SUMMARY, "status": "finished"}, UsageError("diverged"), "failed"),
        (None, KeyboardInterrupt(), "stopped"),
        (None, ZeroDivisionError(), "failed"),
    ],
)
def test_the_status_follows_from_the_summary_and_the_error(summary, error, status):
    result = run_result(summary, error, "/x/model.safetensors")
    assert result.status == status and result.model == "/x/model.safetensors"
    assert result.test_loss == (0.25 if summary else None)
