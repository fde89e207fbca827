"""Slow work that the coordinator's loop runs on background threads."""

import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

from hogbatch.coordinator.commands import Command
from hogbatch.machine.pollable_queue import PollableQueue

T = TypeVar("T")
Event = Callable[[float], list[Command]]  # a call of the state, given the time


class BackgroundTasks:
    """One thread for each kind of task, so that no kind waits for another.

    Tasks of one kind run in the order in which they were submitted.
    """

    def __init__(self) -> None:
        self.outcomes = PollableQueue[Event | BaseException]()
        kinds = (TaskThread(self.outcomes.put) for _ in range(4))
        self.shuffles, self.copies, self.writes, self.exchanges = kinds

    def events(self) -> Iterator[Event]:
        """Results of the tasks finished so far; raises the exception of a task that failed."""
        for outcome in self.outcomes.taken():
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome

    def finish(self) -> None:
        """Wait until all submitted tasks are done; no more are accepted."""
        for thread in (self.shuffles, self.copies, self.writes, self.exchanges):
            thread.finish()


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
