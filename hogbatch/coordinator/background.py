"""Work that would hold the coordinator's loop up, done on threads beside it."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from hogbatch.coordinator.commands import Command

Event = Callable[[float], list[Command]]  # what to tell the state, given the time


class Wakeup:
    """A descriptor that is readable once somebody has rung, from any thread."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._open = threading.Lock()  # held while the descriptor is used or given up

    def ring(self) -> None:
        """Make it readable; nothing happens once it is closed."""
        with self._open:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def quieten(self) -> None:
        """Make it unreadable until the next ring."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        """Give the descriptor up."""
        with self._open:
            os.close(self.fd)
            self.fd = -1


class BackgroundTasks:
    """Three threads, so that no kind of work waits for another; each does its own in turn."""

    def __init__(self) -> None:
        self.wakeup = Wakeup()
        self._outcomes: queue.SimpleQueue[Event | Exception] = queue.SimpleQueue()
        self.shuffles, self.copies, self.writes = (_Thread(self._take_in) for _ in range(3))

    def events(self) -> Iterator[Event]:
        """What has come of the work so far; raises what a job has failed with."""
        self.wakeup.quieten()
        while not self._outcomes.empty():
            outcome = self._outcomes.get_nowait()
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome

    def finish(self) -> None:
        """Return when all that was begun is done."""
        for thread in (self.shuffles, self.copies, self.writes):
            thread.finish()

    def _take_in(self, outcome: Event | Exception) -> None:
        self._outcomes.put(outcome)
        self.wakeup.ring()


class _Thread:
    """Started with its first job; a daemon, so that a run can be stopped in the middle of one."""

    def __init__(self, tell: Callable[[Event | Exception], None]) -> None:
        self._tell = tell
        self._jobs: queue.SimpleQueue[Callable[[], Event] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[..., Event], *arguments: object) -> None:
        """Do `job` after those before it, and tell what comes of it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()
        self._jobs.put(partial(job, *arguments))

    def finish(self) -> None:
        """Return when nothing is left to be done; nothing more is accepted."""
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                outcome: Event | Exception = job()
            except Exception as error:
                outcome = error
            self._tell(outcome)
