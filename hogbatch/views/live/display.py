"""A thread that draws frames of a view, about four per second."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, TextIO, cast

from rich.text import Text

from hogbatch.views.live.capabilities import Size
from hogbatch.views.live.screen import ErrorsAbove, Screen

log = logging.getLogger(__name__)

INTERVAL_S: Final = 0.25  # between two frames
SHARE: Final = 0.005  # of one core
SAVED_S: Final = 0.02  # CPU seconds that may be spent at once after a time without frames

Frame = Callable[[Size], Sequence[Text]]


@dataclass(slots=True)
class RedrawBudget:
    """The CPU seconds that the view may use: SHARE of the time, and at first SAVED_S."""

    left: float = SAVED_S

    def pause(self, cost: float, elapsed: float) -> float:
        """Seconds until the next frame.

        `cost` are the CPU seconds of the last one, and `elapsed` the seconds since the one before.
        """
        self.left = min(SAVED_S, self.left + SHARE * elapsed) - cost
        return max(INTERVAL_S, -self.left / SHARE)


class Display:
    """Shows what `frame` returns for the size of the terminal, until `stop`."""

    def __init__(self, screen: Screen, frame: Frame) -> None:
        self._screen = screen
        self._frame = frame
        self._stopped = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="live view", daemon=True)
        self._stderr: ErrorsAbove | None = None
        self._on_continue: Any = None  # the previous handler of SIGCONT

    def start(self) -> None:
        """Begin to draw; lines that are written to sys.stderr appear above the frame."""
        if sys.stderr is not None and sys.stderr.isatty():
            self._stderr = ErrorsAbove(self._screen, sys.stderr)
            sys.stderr = cast(TextIO, self._stderr)
        if threading.current_thread() is threading.main_thread():
            self._on_continue = signal.signal(signal.SIGCONT, self._continued)
        self._thread.start()

    def stop(self, below: str = "") -> None:
        """Draw the last frame, which stays on the terminal with room for the text `below` it."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        self._draw(self._screen.rows(below))
        self._screen.leave()
        if self._stderr is not None:
            if sys.stderr is cast(TextIO, self._stderr):
                sys.stderr = self._stderr.stderr
            with suppress(OSError):
                self._stderr.drain()
        if self._on_continue is not None:
            signal.signal(signal.SIGCONT, self._on_continue)

    def _run(self) -> None:
        budget, pause = RedrawBudget(), 0.0
        begun, used = time.monotonic(), 0.0  # CPU seconds of this thread
        while not self._stopped.wait(pause) and not self._failed:
            self._draw()
            now, cpu = time.monotonic(), time.thread_time()
            pause = budget.pause(cpu - used, now - begun)
            begun, used = now, cpu

    def _draw(self, below: int = 0) -> None:
        """Draw a frame above `below` free lines; a bug in the view must not end the run."""
        if self._failed:
            return
        try:
            size = width, height = self._screen.size
            self._screen.show(self._frame(Size(width, height - below)), size)
        except Exception:
            self._failed = True
            self._screen.leave()
            log.exception("the live view has failed, which is a bug; the run continues")

    def _continued(self, number: int, frame: FrameType | None) -> None:
        """This process continues after Ctrl-Z, on a terminal that a shell has used meanwhile."""
        self._screen.displace()
        if callable(self._on_continue):
            self._on_continue(number, frame)
