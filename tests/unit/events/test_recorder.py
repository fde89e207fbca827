import io
import json

import numpy as np
import pytest
from msgspec.structs import replace

from hogbatch.events.event import EpochEnded, WorkerGivenUp, WorkerReady, read_event
from hogbatch.events.recorder import RefusalCounts, RunRecorder
from hogbatch.events.records import Evaluation, Faults, RunTotals, WorkerRecord
from hogbatch.views.console import PlainConsole

FIRST = Evaluation(1.5, 0.5, 100, 0.4, 0.3, {"P@1": 0.6, "P@3": 0.5}, {"cpu-0": 0.8})
SECOND = Evaluation(2.5, 1.0, 200, 0.2, 0.35, {"P@1": 0.5, "P@3": 0.4})
WORKER = WorkerRecord("cpu-0", "cpu", 2, 200, 5, 1.0, 0.9, 16, [(0.0, 16)], [(1.0, 5)])
TOTALS = RunTotals(2.5, 1.0, 200, [WORKER], Faults(messages_refused=2, workers_lost=1))


NONE = RefusalCounts(0, 0)


@pytest.fixture
def screen():
    return io.StringIO()


@pytest.fixture
def shared():
    return np.arange(4, dtype=np.float32)


@pytest.fixture
def recorder(tmp_path, screen, shared):
    recorder = RunRecorder(tmp_path, [PlainConsole(quiet=False, stream=screen)], shared)
    yield recorder
    recorder.log.close()


def test_an_evaluation_is_printed_logged_and_remembered(recorder, screen, tmp_path):
    recorder.report(FIRST, TOTALS)
    assert "P@1 0.6000" in screen.getvalue()
    event = json.loads((tmp_path / "events.jsonl").read_text())
    assert (event["event"], event["test_loss"]) == ("evaluation", 0.3)
    assert recorder.history == [FIRST]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (WorkerGivenUp("cpu:2", "4 deaths:\nno"), "cpu:2 will not be restarted: 4 deaths:\nno\n"),
        (EpochEnded(0, 64), ""),
    ],
)
def test_events_with_a_text_are_printed_and_all_are_logged(recorder, screen, tmp_path, event, line):
    recorder.record(event)
    assert screen.getvalue() == line
    logged = read_event((tmp_path / "events.jsonl").read_bytes())
    assert replace(logged, at=0.0) == event


def test_kept_parameters_do_not_change(recorder, shared):
    recorder.keep(FIRST)
    shared += 1
    assert recorder.params.tolist() == [0, 1, 2, 3]
    recorder.keep(SECOND)
    shared += 1
    assert recorder.params.tolist() == [1, 2, 3, 4]
    assert recorder.kept is SECOND


def test_the_copy_of_kept_parameters_is_reused(recorder, shared):
    recorder.keep(FIRST)
    memory = recorder.params.ctypes.data
    shared[:] = 9
    recorder.keep(SECOND)
    assert recorder.params.ctypes.data == memory and set(recorder.params) == {9}


def test_a_copy_in_use_by_a_checkpoint_is_not_overwritten(recorder, shared):
    recorder.keep(FIRST)
    lent, before = recorder.kept_params, shared.copy()
    shared[:] = 9
    recorder.keep(SECOND)
    assert lent.tolist() == before.tolist() and set(recorder.params) == {9}
    del lent
    memory = recorder.params.ctypes.data
    recorder.keep(FIRST)
    assert recorder.params.ctypes.data == memory


def test_without_kept_parameters_the_shared_ones_are_saved(recorder, shared):
    assert recorder.params is shared


def test_the_summary_has_the_final_totals(recorder):
    for evaluation in (FIRST, SECOND):
        recorder.report(evaluation, TOTALS)
    recorder.keep(FIRST)
    summary = json.loads(json.dumps(recorder.summary("finished", "", TOTALS, RefusalCounts(3, 2))))
    history = summary.pop("history")
    assert history[0] == {
        "seconds": 1.5,
        "epochs": 0.5,
        "rows": 100,
        "train_loss": 0.4,
        "test_loss": 0.3,
        "test_value": 0.6,
        "test_values": {"P@1": 0.6, "P@3": 0.5},
        "utilization": {"cpu-0": 0.8},
        "exact_train_loss": None,
        "train_values": {},
    }
    assert [entry["test_value"] for entry in history] == [0.6, 0.5]
    (worker,) = summary.pop("workers")
    assert worker["batch_trace"] == [[0.0, 16]]
    assert worker["staleness"] is None
    assert summary == {
        "status": "finished",
        "reason": "",
        "train_seconds": 2.5,
        "epochs": 1.0,
        "rows": 200,
        "train_loss": 0.2,
        "test": {"loss": 0.3, "metric": "P@1", "value": 0.6, "values": {"P@1": 0.6, "P@3": 0.5}},
        "saved": {"seconds": 1.5, "epochs": 0.5},
        "faults": {
            "leases_reissued": 0,
            "rows_skipped": 0,
            "messages_refused": 5,
            "workers_lost": 1,
            "merges_refused": 0,
            "rows_quarantined": 0,
            "roll_backs": 0,
            "checkpoints_failed": 0,
            "connections_refused": 2,
        },
    }


@pytest.mark.parametrize("kept", [None, Evaluation(1.5, 0.5, 100, 0.4, None)])
def test_without_a_tested_model_the_summary_has_no_test(recorder, kept):
    recorder.keep(kept)
    assert recorder.summary("stopped", "interrupted", TOTALS, NONE)["test"] is None


def test_a_run_without_training_has_a_summary(recorder):
    summary = recorder.summary("failed", "no worker", RunTotals(0.0, 0.0, 0, [], Faults()), NONE)
    assert (summary["history"], summary["train_loss"], summary["saved"]) == ([], None, None)


def test_an_evaluation_without_metrics_has_no_leading_one(recorder):
    recorder.report(Evaluation(1.5, 0.5, 100, 0.4, None), TOTALS)
    (entry,) = recorder.summary("finished", "", TOTALS, NONE)["history"]
    assert entry["test_value"] is None


class Watcher:
    def __init__(self):
        self.seen = []

    def event(self, event):
        self.seen.append(event)

    def report(self, evaluation, totals):
        self.seen.append((evaluation, totals))


def test_an_observer_sees_all_that_is_logged(tmp_path, shared):
    watcher = Watcher()
    recorder = RunRecorder(tmp_path, [watcher], shared)
    recorder.record(WorkerReady("cpu-0", (1, 64), 16))
    recorder.report(FIRST, TOTALS)
    recorder.log.close()
    logged = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert watcher.seen[:2] == [read_event(line) for line in logged]
    assert watcher.seen[2:] == [(FIRST, TOTALS)]
