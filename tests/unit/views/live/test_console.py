import pytest

from hogbatch.data.progress import ReadProgress
from hogbatch.events.state import RunState, condition_of
from hogbatch.views.live import console as live
from hogbatch.views.live.activity import Activity, preparing
from hogbatch.views.live.console import LiveConsole, RunView
from tests.support.fault_injection import wait_for
from tests.support.run_events import TRAINING, ended, started
from tests.unit.views.live.conftest import Emulator, terminal_of


@pytest.fixture
def stream():
    return Emulator(80, 24)


@pytest.fixture
def console(stream, monkeypatch):
    monkeypatch.setattr(live, "INTERVAL_S", 0.01)
    return LiveConsole(terminal_of(stream))


def test_the_last_frame_has_all_events_and_is_followed_by_the_result(stream, console):
    with console:
        console.say("a note")
        for event in (*TRAINING, ended(rows=1000, seconds=2.0)):
            console.event(event)
        console.say("finished: test loss 0.4")
        shown = stream.lines
    assert stream.lines == shown, "nothing is drawn after the end"
    assert shown[:2] == ["a note", "finished: all epochs"]
    assert shown[-1] == "finished: test loss 0.4"
    assert any(line.startswith("validated 0.4000") for line in shown)
    assert sum(line.startswith("cpu-0") for line in shown) == 1


def test_the_activity_before_the_first_event_is_shown(stream, console):
    progress = ReadProgress()
    progress.begin("/data/x.csv", 1_000_000)
    progress.add(250_000)
    with console:
        console.busy("reading the data", progress)
        wait_for(lambda: "reading x.csv" in stream.lines[-1], "the activity is shown")
    assert stream.lines[0] == "preparing" and "25%  250 kB of 1 MB" in stream.lines[1]


def test_an_error_leaves_the_last_frame(stream, console):
    with pytest.raises(ValueError), console:
        console.event(started())
        raise ValueError
    assert stream.lines[0].startswith("waiting  a9a")


def test_a_bug_in_a_frame_is_logged_and_ends_only_the_view(stream, console, monkeypatch, caplog):
    monkeypatch.setattr(live, "Frame", lambda *_: 1 / 0)
    with console:
        wait_for(lambda: caplog.records, "the bug is logged")
        console.say("said")
    assert "the run continues" in caplog.text and len(caplog.records) == 1
    assert stream.lines == ["said"]


def test_reading_and_preparing_rows():
    progress = ReadProgress()
    preparation = "reading the data", progress
    assert preparing(*preparation) == Activity("reading the data"), "or it comes from the cache"
    progress.begin("x.csv", None)
    progress.add(2000)
    assert preparing(*preparation) == Activity("reading x.csv", None, "2 kB")
    progress.end()
    assert preparing(*preparation).text.startswith("preparing the rows")


def test_the_time_of_an_activity_begins_when_it_is_first_seen(stream):
    view, run = RunView(terminal_of(stream), iter([10.0, 12.5, 13.0, 20.0]).__next__), RunState()
    for text, shown in (("one", ""), ("one", "  2.0 s"), ("two", ""), ("two", "  7.0 s")):
        with view:
            view.draw(run, condition_of(run, True), Activity(text))
        assert stream.lines[-1] == f"now       {text}{shown}"
