import io

import pytest

from hogbatch.events.state import RunState
from hogbatch.views.console import PlainConsole
from hogbatch.views.live import bar as module
from hogbatch.views.live.bar import BarConsole, bar
from hogbatch.views.live.choose import console_in_python
from tests.support.run_events import TRAINING, ended, started
from tests.unit.views.live.conftest import Emulator


@pytest.fixture
def stream():
    return Emulator(100, 24)


def test_lines_stay_above_the_bar_which_is_gone_at_the_end(stream, monkeypatch):
    monkeypatch.setattr(module, "INTERVAL_S", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    console = BarConsole(stream)
    console.say("a note")
    console.event(started())
    assert stream.lines == ["a note"]
    for event in TRAINING:
        console.event(event)
    note, shown = stream.lines
    assert note == "a note" and shown.startswith("[") and "accuracy 0.8000" in shown
    console.say("a longer note " * 3)
    assert stream.lines == ["a note", "a longer note " * 2 + "a longer note"]
    console.event(ended(rows=1000, seconds=2.0))
    console.say("finished")
    assert stream.lines[-1] == "finished" and "[" not in "".join(stream.lines)


def test_the_bar_fits_and_has_what_is_known():
    run = RunState()
    for event in TRAINING:
        run.apply(event)
    for columns in (20, 60, 200):
        assert len(bar(run, columns)) <= columns
    assert "[##------------------]  10%  epoch 1.0 of 10  500 rows/s  accuracy" in bar(run, 200)


@pytest.mark.parametrize(
    ("stream", "settings", "kind"),
    [
        (Emulator(), {}, BarConsole),
        (Emulator(), {"plain": True}, PlainConsole),
        (Emulator(), {"quiet": True}, PlainConsole),
        (io.StringIO(), {}, PlainConsole),
        (type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})(), {}, BarConsole),
        (None, {}, PlainConsole),
    ],
)
def test_terminals_and_notebooks_have_a_bar(stream, settings, kind, monkeypatch):
    monkeypatch.setattr("sys.stdout", stream)
    assert type(console_in_python(**{"quiet": False, "plain": False} | settings)) is kind


def test_a_closed_terminal_is_ignored(stream, monkeypatch):
    monkeypatch.setattr(module, "INTERVAL_S", 0.0)
    console = BarConsole(stream)
    monkeypatch.setattr(stream, "write", lambda text: (_ for _ in ()).throw(OSError(5, "gone")))
    for event in (started(), *TRAINING, ended(rows=1000, seconds=2.0)):
        console.event(event)
    console.say("finished")
