import json
import os
import time

import pytest

from hogbatch.telemetry.sinks import EventLog, write_summary


def test_every_event_is_a_line_of_json_that_can_be_read_at_once(tmp_path):
    log, before = EventLog(tmp_path / "events.jsonl"), time.time() - 1e-4
    log.write("worker_joined", {"worker": "cpu-0", "reason": "a\nb", "limits": (1, 64)})
    log.write("stop", {})
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert before <= events[0].pop("at") <= events[1].pop("at") <= time.time() + 1e-4
    assert events == [
        {"event": "worker_joined", "worker": "cpu-0", "reason": "a\nb", "limits": [1, 64]},
        {"event": "stop"},
    ]
    log.close()


def test_a_second_run_in_a_directory_begins_a_new_log(tmp_path):
    for name in ("first", "second"):
        log = EventLog(tmp_path / "events.jsonl")
        log.write(name, {})
        log.close()
    assert json.loads((tmp_path / "events.jsonl").read_text())["event"] == "second"


def test_a_summary_is_read_back_as_it_was_written(tmp_path):
    path = tmp_path / "summary.json"
    write_summary(path, {"status": "failed"})
    write_summary(path, {"status": "finished", "test": None})
    assert json.loads(path.read_text()) == {"status": "finished", "test": None}
    assert os.listdir(tmp_path) == ["summary.json"]


def test_a_summary_that_could_not_be_written_whole_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_summary(path, {"status": "old"})

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_summary(path, {"status": "new"})
    assert json.loads(path.read_text()) == {"status": "old"}


@pytest.mark.parametrize("rest", ["", '{"event": "half of'])
def test_a_log_goes_on_behind_the_last_whole_line(tmp_path, rest):
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "one"}\n{"event": "two"}\n' + rest)
    log = EventLog(path, append=True)
    log.write("three", {})
    log.close()
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events == ["one", "two", "three"]


def test_a_log_that_is_not_there_is_begun(tmp_path):
    EventLog(tmp_path / "events.jsonl", append=True).close()
    assert (tmp_path / "events.jsonl").read_text() == ""
