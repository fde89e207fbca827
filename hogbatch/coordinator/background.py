"""Slow work that the coordinator's loop runs on background threads."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from hogbatch.coordinator.commands import Command

T = TypeVar("T")
Event = Callable[[float], list[Command]]  # a call of the state, given the time


class Wakeup:
    """A file descriptor that any thread can make readable."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._open = threading.Lock()  # held while the descriptor is used or closed

    def set(self) -> None:
        """Make it readable; does nothing after `close`."""
        with self._open:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Make it unreadable until the next `set`."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        with self._open:
            os.close(self.fd)
            self.fd = -1


class BackgroundTasks:
    """One thread for each kind of task, so that no kind waits for another.

    Tasks of one kind run in the order in which they were submitted.
    """

    def __init__(self) -> None:
        self.wakeup = Wakeup()
        self._outcomes: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        kinds = (TaskThread(self._put) for _ in range(4))
        self.shuffles, self.copies, self.writes, self.exchanges = kinds

    def events(self) -> Iterator[Event]:
        """Results of the tasks finished so far; raises the exception of a task that failed."""
        self.wakeup.clear()
        while not self._outcomes.empty():
            outcome = self._outcomes.get_nowait()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome

    def finish(self) -> None:
        """Wait until all submitted tasks are done; no more are accepted."""
        for thread in (self.shuffles, self.copies, self.writes, self.exchanges):
            thread.finish()

    def _put(self, outcome: Event | BaseException) -> None:
        self._outcomes.put(outcome)
        self.wakeup.set()


class TaskThread(Generic[T]):
    """A thread that starts with its first task, and reports the results and exceptions of tasks.

    It is a daemon, so that a run can be stopped in the middle of a task.
    """

    def __init__(self, report: Callable[[T | BaseException], object]) -> None:
        self._report = report
        self._tasks: queue.SimpleQueue[Callable[[], T] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, task: Callable[..., T], *arguments: object) -> None:
        """Run `task` after those before it, and report its result."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._tasks.put(partial(task, *arguments))

    def finish(self) -> None:
        """Wait until all tasks are done; no more are accepted."""
        self.end()
        if self._thread is not None:
            self._thread.join()

    def end(self) -> None:
        """End when all tasks are done; no more are accepted."""
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                outcome: T | BaseException = task()
            except BaseException as error:
                outcome = error
            self._report(outcome)
