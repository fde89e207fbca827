import json
import os

import pytest

from hogbatch.errors import DataError
from hogbatch.status.events import TAIL, EventReader, first_event, last_event
from hogbatch.telemetry.event_log import EventLog


def line(number):
    return json.dumps({"event": f"e{number}", "at": float(number)}) + "\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def names(reader):
    return [event["event"] for event in reader.read()]


def test_each_event_is_read_once(path):
    reader = EventReader(path)
    assert names(reader) == []
    with path.open("w", buffering=1) as file:
        file.write(line(1) + line(2))
        assert names(reader) == ["e1", "e2"]
        assert names(reader) == []
        file.write(line(3))
        assert names(reader) == ["e3"]
    assert not reader.was_replaced() and reader.damaged == 0


def test_an_incomplete_line_is_read_when_it_is_complete(path):
    reader, text = EventReader(path), line(2)
    path.write_text(line(1) + text[:9])
    assert names(reader) == ["e1"]
    path.write_text(line(1) + text)
    assert not reader.was_replaced()
    assert names(reader) == ["e2"]


def test_a_run_that_is_resumed_replaces_the_incomplete_line_of_its_predecessor(path):
    reader = EventReader(path)
    path.write_text(line(1) + line(2)[:9])
    assert names(reader) == ["e1"]
    log = EventLog(path, append=True, now=lambda: 3.0)
    log.write("resumed", {})
    log.close()
    assert not reader.was_replaced()
    assert names(reader) == ["resumed"]


@pytest.mark.parametrize("size", [1, 50], ids=["shorter", "longer"])
def test_a_new_run_in_the_directory_is_read_from_its_start(path, size):
    reader = EventReader(path)
    path.write_text(line(1) + line(2))
    assert names(reader) == ["e1", "e2"]
    path.unlink()
    assert not reader.was_replaced() and names(reader) == []
    path.write_text("".join(map(line, range(7, 7 + size))))
    assert reader.was_replaced()
    assert names(reader) == [f"e{number}" for number in range(7, 7 + size)]


def test_a_new_run_that_begins_alike_is_recognised_by_its_length(path):
    reader = EventReader(path)
    path.write_text(line(1) + line(2))
    assert names(reader) == ["e1", "e2"]
    path.write_text(line(1))
    assert reader.was_replaced() and names(reader) == ["e1"]


@pytest.mark.parametrize("damaged", ["{", "[1]", '{"at": 1}', '{"event": "x", "at": "y"}', "\xff"])
def test_a_damaged_line_is_counted_and_left_out(path, damaged):
    path.write_bytes(f"{line(1)}{damaged}\n{line(2)}".encode("latin-1"))
    reader = EventReader(path)
    assert names(reader) == ["e1", "e2"]
    assert reader.damaged == 1


def test_a_number_that_is_not_finite_is_accepted(path):
    path.write_text('{"event": "e", "at": 1.0, "x": NaN}\n')
    assert names(EventReader(path)) == ["e"]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(DataError, match=r"events\.jsonl: cannot read the events: Is a directory"):
        names(EventReader(tmp_path / "events.jsonl"))


def test_the_first_and_the_last_event_of_a_long_file(path):
    path.write_text("".join(map(line, range(TAIL // 20))))
    assert os.path.getsize(path) > TAIL
    assert first_event(path)["event"] == "e0"
    assert last_event(path)["event"] == f"e{TAIL // 20 - 1}"


@pytest.mark.parametrize("text", ["", line(1)[:9]])
def test_a_file_without_a_complete_line_has_no_last_event(path, text):
    path.write_text(text)
    assert first_event(path) is None and last_event(path) is None


def test_an_incomplete_last_line_is_no_event(path):
    path.write_text(line(1) + line(2)[:9])
    assert last_event(path) is None
