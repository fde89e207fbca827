"""The live view of a run, of this process or of another one."""

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from hogbatch.data.progress import ReadProgress
from hogbatch.events.event import AnyEvent, Ended
from hogbatch.events.records import WorkerRecord
from hogbatch.events.state import Condition, RunState, condition_of
from hogbatch.machine.printable import printable_lines
from hogbatch.views.console import Console
from hogbatch.views.live.activity import Activity, preparing, running
from hogbatch.views.live.frame import Frame
from hogbatch.views.live.terminal import Terminal
from hogbatch.views.status.run_files import RunReport

INTERVAL_S: Final = 0.5  # between two frames
PREPARING: Final = Activity("reading its data, or it has ended before training")
log = logging.getLogger(__name__)


class RunView:
    """A view of one run at the bottom of a terminal, from `with` on; the last lines stay.

    What is written to stderr appears above them if stderr is a terminal, too.
    """

    def __init__(self, terminal: Terminal, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal, self._clock = terminal, clock
        self._text = ""  # of the current activity
        self._begun = 0.0  # when it was first seen
        self._live = Live(
            console=terminal,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        with self._terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if sys.stderr is not None:
            sys.stderr.flush()  # its last line may be incomplete
        with self._terminal:
            self._live.stop()

    def draw(self, run: RunState, condition: Condition, preparing: Activity) -> None:
        """Show the run as it is now; `preparing` is its activity before its first event."""
        activity = preparing if run.started is None else running(run, condition)
        text = activity.text if activity is not None else ""
        now = self._clock()
        if text != self._text:
            self._text, self._begun = text, now
        size, encoding = self._terminal.fit(), self._terminal.encoding
        frame = Frame(run, condition, activity, now - self._begun, size, encoding)
        self.show(frame.lines())

    def show(self, lines: Sequence[Text]) -> None:
        """Replace the lines. The cursor then stands in an empty line below them."""
        with self._terminal:
            self._live.update(Group(*lines, ""), refresh=True)


class LiveConsole(Console):
    """Shows a view of the run below the lines that stay, from `with` to the end of the run.

    The thread of the coordinator only appends events to a queue; another thread interprets them.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._view = RunView(terminal)
        self._events: deque[AnyEvent] = deque()
        self._run = RunState()
        self._preparing = partial(preparing, "starting")
        self._ended = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._draw_frames, name="live view", daemon=True)

    def __enter__(self) -> Self:
        self._view.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def say(self, line: str) -> None:
        if self._ended:  # the result, which belongs below the last frame
            self._stop()
        self._terminal.say(printable_lines(line))

    def busy(self, activity: str, progress: ReadProgress | None = None) -> None:
        self._preparing = partial(preparing, activity, progress)

    def event(self, event: AnyEvent, workers: Sequence[WorkerRecord] = ()) -> None:
        self._events.append(event)
        self._ended = isinstance(event, Ended) or self._ended

    def _stop(self) -> None:
        """Draw the last frame, which stays on the terminal."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._thread.join()
            self._view.__exit__()

    def _draw_frames(self) -> None:
        """Draw frames until the end; a bug in the view must not end the run."""
        try:
            while not self._stopped.wait(INTERVAL_S):
                self._draw()
            self._draw()
        except Exception:
            self._view.show([])
            log.exception("the live view has failed, which is a bug; the run continues")

    def _draw(self) -> None:
        while self._events:
            self._run.apply(self._events.popleft())
        self._view.draw(self._run, condition_of(self._run, True), self._preparing())


def follow(look: Callable[[], RunReport], terminal: Terminal) -> None:
    """Show the run of another process until it has ended. Errors as from `look`."""
    with RunView(terminal) as view:
        while True:
            _, run, condition, _ = look()
            view.draw(run, condition, PREPARING)
            if condition.over:
                return
            time.sleep(INTERVAL_S)
