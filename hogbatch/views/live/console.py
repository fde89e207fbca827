"""The view of a run of this process."""

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.text import Text

from hogbatch.data.progress import ReadProgress
from hogbatch.events.event import AnyEvent, Ended
from hogbatch.events.records import Evaluation, RunTotals
from hogbatch.events.state import RunState, condition_of
from hogbatch.machine.printable import printable_lines
from hogbatch.views.console import Console
from hogbatch.views.live.activity import Activity, Preparation, preparing, running
from hogbatch.views.live.capabilities import Capabilities, Size
from hogbatch.views.live.display import Display
from hogbatch.views.live.frame import View, frame
from hogbatch.views.live.screen import Screen


class LiveConsole(Console):
    """Shows a view of the run below the lines that stay, from `with` to the end of the run.

    The thread of the coordinator only appends events to a queue; the display's thread interprets
    them.
    """

    def __init__(self, screen: Screen, able: Capabilities) -> None:
        self._screen = screen
        self._able = able
        self._events: deque[AnyEvent] = deque()
        self._run = RunState()
        self._preparation = Preparation("starting")
        self._activities = ActivityClock()
        self._status: str | None = None  # with which the run has ended
        self._display = Display(screen, self._frame)

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._display.stop(f"hogbatch: {error}" if error is not None else "")

    def say(self, line: str) -> None:
        text = printable_lines(line)
        if self._status:  # the result, which belongs below the last frame
            twice = self._status == "stopped"  # stderr gets a line of about the same length
            self._display.stop(f"{text}\n{text}" if twice else text)
        self._screen.say(text)

    def busy(self, activity: str, progress: ReadProgress | None = None) -> None:
        self._preparation = Preparation(activity, progress)

    def event(self, event: AnyEvent) -> None:
        self._events.append(event)
        if isinstance(event, Ended):
            self._status = event.status

    def report(self, evaluation: Evaluation, totals: RunTotals) -> None:
        pass  # there is an event, too

    def _frame(self, size: Size) -> list[Text]:
        """The frame of what has happened so far; called by one thread at a time."""
        run = self._run
        while self._events:
            run.apply(self._events.popleft())
        condition = condition_of(run, True)
        if run.started is None:
            activity: Activity | None = preparing(self._preparation)
        else:
            activity = running(run, condition)
        view = View(run, condition, activity, self._activities.elapsed(activity))
        return frame(view, size, self._able)


class ActivityClock:
    """How long a run has been busy with one activity."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._text = ""
        self._begun = 0.0

    def elapsed(self, activity: Activity | None) -> float:
        """Seconds since the activity was first seen."""
        text = activity.text if activity is not None else ""
        now = self._clock()
        if text != self._text:
            self._text, self._begun = text, now
        return now - self._begun
