import io

import pytest

from hogbatch.data.progress import ReadProgress
from hogbatch.views.live.activity import Activity, Preparation, preparing
from hogbatch.views.live.capabilities import Capabilities, Size
from hogbatch.views.live.console import ActivityClock, LiveConsole
from hogbatch.views.live.screen import Screen
from tests.unit.views.status.conftest import TRAINING, ended, started


class RecordingScreen(Screen):
    """Remembers the last frame, and what was printed; None for each frame."""

    size = Size(80, 24)

    def __init__(self):
        super().__init__(io.StringIO(), colour=False)
        self.frame, self.said = [], []

    def show(self, frame, made_for=None):
        self.frame = [line.plain for line in frame]
        self.said.append(None)

    def say(self, text):
        self.said.append(text)


@pytest.fixture
def screen():
    return RecordingScreen()


@pytest.fixture
def console(screen):
    return LiveConsole(screen, Capabilities(False, True))


def test_the_last_frame_has_all_events_and_is_followed_by_the_result(screen, console):
    with console:
        console.say("a note")
        for event in (*TRAINING, ended(rows=1000, seconds=2.0)):
            console.event(event)
        console.say("finished: test loss 0.4")
        frame = screen.frame
        assert screen.said[-2:] == [None, "finished: test loss 0.4"]
    assert screen.frame == frame, "nothing is drawn after the end"
    assert frame[0] == "finished: all epochs"
    assert any("test 0.4000" in line for line in frame)
    assert any(line.startswith("cpu-0") for line in frame)


def test_the_activity_before_the_first_event_is_shown(screen, console):
    progress = ReadProgress()
    progress.begin("/data/x.csv", 1_000_000)
    progress.add(250_000)
    with console:
        console.busy("reading the data", progress)
    assert screen.frame[0] == "preparing"
    assert "reading x.csv" in screen.frame[1] and "25%  250 kB of 1 MB" in screen.frame[1]


def test_an_error_leaves_the_last_frame(screen, console):
    with pytest.raises(ValueError), console:
        console.event(started())
        raise ValueError
    assert screen.frame[0].startswith("waiting  a9a")


def test_reading_and_preparing_rows():
    progress = ReadProgress()
    preparation = Preparation("reading the data", progress)
    assert preparing(preparation) == Activity("reading the data"), "or it comes from the cache"
    progress.begin("x.csv", None)
    progress.add(2000)
    assert preparing(preparation) == Activity("reading x.csv", None, "2 kB")
    progress.end()
    assert preparing(preparation).text.startswith("preparing the rows")


def test_the_time_of_an_activity_begins_when_it_is_first_seen():
    clock = ActivityClock(iter([10.0, 12.5, 13.0, 20.0]).__next__)
    activities = (Activity("one"), Activity("one", 0.5), Activity("two"), None)
    assert list(map(clock.elapsed, activities)) == [0.0, 2.5, 0.0, 0.0]
