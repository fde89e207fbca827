import json
import time
from pathlib import Path

import pytest

from hogbatch.events.event import Goodbye, WorkerLost, WorkerReady
from hogbatch.events.event_log import EventLog


def test_every_event_is_a_flushed_line_of_json(tmp_path):
    log, before = EventLog(tmp_path / "events.jsonl"), time.time() - 1e-4
    written = log.write(WorkerLost("cpu-0", "a\nb")), log.write(WorkerReady("cpu-0", (1, 64), 8))
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [each.at for each in written] == [event["at"] for event in events]
    assert before <= events[0].pop("at") <= events[1].pop("at") <= time.time() + 1e-4
    assert events == [
        {"event": "worker_lost", "worker": "cpu-0", "reason": "a\nb"},
        {"event": "worker_ready", "worker": "cpu-0", "limits": [1, 64], "batch_size": 8},
    ]
    log.close()


def test_a_second_run_in_a_directory_begins_a_new_log(tmp_path):
    for name in ("first", "second"):
        log = EventLog(tmp_path / "events.jsonl")
        log.write(Goodbye(name))
        log.close()
    assert json.loads((tmp_path / "events.jsonl").read_text())["worker"] == "second"


@pytest.mark.parametrize("rest", ["", '{"event": "half of'])
def test_a_log_is_continued_after_the_last_complete_line(tmp_path, rest):
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "one"}\n{"event": "two"}\n' + rest)
    log = EventLog(path, append=True)
    log.write(Goodbye("three"))
    log.close()
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events == ["one", "two", "goodbye"]


def test_a_missing_log_is_created(tmp_path):
    EventLog(tmp_path / "events.jsonl", append=True).close()
    assert (tmp_path / "events.jsonl").read_text() == ""


def test_a_full_disk_ends_the_log_with_one_warning_and_not_the_run(caplog):
    log = EventLog(Path("/dev/full"))
    for _ in range(3):
        log.write(Goodbye("cpu-0"))
    log.close()
    assert caplog.messages == ["/dev/full: event logging has stopped: No space left on device"]


def test_a_log_that_cannot_be_opened_is_a_warning(tmp_path, caplog):
    log = EventLog(tmp_path / "gone" / "events.jsonl")
    log.write(Goodbye("cpu-0"))
    log.close()
    path = tmp_path / "gone" / "events.jsonl"
    assert caplog.messages == [f"{path}: cannot log events: No such file or directory"]
