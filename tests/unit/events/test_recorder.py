import io
import json
from dataclasses import asdict

import numpy as np
import pytest
from msgspec.structs import replace

from hogbatch.events import event as events_module
from hogbatch.events.event import EpochEnded, Evaluation, WorkerGivenUp, read_event
from hogbatch.events.event_log import EventLog
from hogbatch.events.recorder import RunRecorder
from hogbatch.events.records import Faults, RunTotals, WorkerRecord
from hogbatch.views.console import PlainConsole

FIRST = Evaluation(1.5, 0.5, 100, 0.4, 0.3, {"P@1": 0.6, "P@3": 0.5}, {"cpu-0": 0.8})
SECOND = Evaluation(2.5, 1.0, 200, 0.2, 0.35, {"P@1": 0.5, "P@3": 0.4})
WORKER = WorkerRecord("cpu-0", "cpu", 2, 200, 5, 1.0, 0.9, 16, [(0.0, 16)], [(1.0, 5)])
TOTALS = RunTotals(2.5, 1.0, 200, [WORKER], Faults(messages_refused=2, workers_lost=1))


class Watcher:
    def __init__(self):
        self.seen = []

    def event(self, event, workers):
        self.seen.append((event, workers))


@pytest.fixture
def watcher():
    return Watcher()


@pytest.fixture
def screen():
    return io.StringIO()


@pytest.fixture
def shared():
    return np.arange(4, dtype=np.float32)


@pytest.fixture
def recorder(tmp_path, screen, shared, watcher):
    log = EventLog(tmp_path / "events.jsonl")
    recorder = RunRecorder(log, [PlainConsole(False, screen), watcher], shared)
    yield recorder
    recorder.log.close()


def test_all_that_is_logged_is_observed_and_events_with_a_text_are_printed(
    recorder, screen, watcher, tmp_path
):
    events = WorkerGivenUp("cpu:2", "4 deaths:\nno"), EpochEnded(0, 64)
    for event in events:
        recorder.record(event)
    recorder.record(FIRST, TOTALS.workers)
    given_up, no, line = screen.getvalue().splitlines()
    assert (given_up, no) == ("cpu:2 will not be restarted: 4 deaths:", "no")
    assert "P@1 0.6000" in line and recorder.history == [FIRST]
    seen, workers = zip(*watcher.seen, strict=True)
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert workers == ((), (), TOTALS.workers)
    assert tuple(map(read_event, lines)) == seen
    assert [replace(each, at=0.0) for each in seen] == [*events, FIRST]


def test_kept_parameters_do_not_change(recorder, shared):
    assert recorder.params is shared, "none are kept yet"
    recorder.keep(FIRST)
    shared += 1
    assert recorder.params.tolist() == [0, 1, 2, 3]
    recorder.keep(SECOND)
    shared += 1
    assert recorder.params.tolist() == [1, 2, 3, 4]
    assert recorder.kept is SECOND


def test_the_first_copy_is_in_memory_reserved_before(recorder, shared):
    recorder.reserve()
    assert recorder.params is shared, "none are kept yet"
    reserved, shared[0] = recorder._reserved, 7
    recorder.keep(FIRST)
    assert recorder.params is reserved and recorder.params.tolist() == [7, 1, 2, 3]


def test_parameters_that_were_overwritten_after_their_evaluation_are_not_kept(recorder, shared):
    assert recorder.keep(FIRST)
    shared[2] = np.nan
    assert not recorder.keep(SECOND)
    assert recorder.params.tolist() == [0, 1, 2, 3] and recorder.kept is FIRST


def test_the_copy_is_reused_unless_a_checkpoint_uses_it(recorder, shared):
    recorder.keep(FIRST)
    lent, before = recorder.kept_params, shared.copy()
    shared[:] = 9
    recorder.keep(SECOND)
    assert lent.tolist() == before.tolist() and set(recorder.params) == {9}
    del lent
    memory = recorder.params.ctypes.data
    shared[:] = 8
    recorder.keep(FIRST)
    assert recorder.params.ctypes.data == memory and set(recorder.params) == {8}


def test_the_kept_parameters_are_exchanged_with_the_shared_ones_and_back(recorder, shared):
    recorder.show_kept(True)  # none are kept
    assert shared.tolist() == [0, 1, 2, 3]
    recorder.keep(FIRST)
    shared[:] = 9
    lent = recorder.kept_params  # a checkpoint of it is being written
    recorder.show_kept(True)
    assert shared.tolist() == lent.tolist() == [0, 1, 2, 3]
    recorder.show_kept(False)
    assert set(shared) == {9} and recorder.params.tolist() == [0, 1, 2, 3]


def test_the_summary_has_the_final_totals(recorder):
    for evaluation in (FIRST, SECOND):
        recorder.record(evaluation)
    recorder.keep(FIRST)
    recorder.record(events_module.Tested(0.35, {"P@1": 0.55}))
    totals = TOTALS.with_refused(3, 2)
    summary = json.loads(json.dumps(recorder.summary("finished", "", totals)))
    history = summary.pop("history")
    assert history[0] == FIRST.fields | {"validation_value": 0.6}
    assert [entry["validation_value"] for entry in history] == [0.6, 0.5]
    (worker,) = summary.pop("workers")
    assert worker["batch_trace"] == [[0.0, 16]] and worker["staleness"] is None
    faults = asdict(Faults(messages_refused=5, workers_lost=1, connections_refused=2))
    values = {"P@1": 0.6, "P@3": 0.5}
    assert summary == {
        "status": "finished",
        "reason": "",
        "train_seconds": 2.5,
        "epochs": 1.0,
        "rows": 200,
        "train_loss": 0.2,
        "validation": {"loss": 0.3, "metric": "P@1", "value": 0.6, "values": values},
        "test": {"loss": 0.35, "metric": "P@1", "value": 0.55, "values": {"P@1": 0.55}},
        "threshold": None,
        "temperature": None,
        "label_vectors": None,
        "baselines": {},
        "saved": {"seconds": 1.5, "epochs": 0.5, "rows": 100},
        "faults": faults,
    }


def test_a_summary_has_null_for_what_is_unknown(recorder):
    summary = recorder.summary("failed", "no worker", RunTotals(0.0, 0.0, 0, [], Faults()))
    found = [summary[key] for key in ("history", "train_loss", "saved", "validation", "test")]
    assert found == [[], None, None, None, None]
    untested = Evaluation(1.5, 0.5, 100, 0.4, None)
    recorder.record(untested)
    recorder.keep(untested)
    summary = recorder.summary("stopped", "interrupted", TOTALS)
    assert summary["validation"] is None and summary["history"][0]["validation_value"] is None
