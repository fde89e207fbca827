"""A thread per tracker: who reports does not wait, and an error of a tracker stays its own."""

import os
import queue
import threading
from typing import Final

from hogbatch.trackers.base import MAX_POINTS, Point, RunDescription, RunResult, Tracker
from hogbatch.trackers.credentials import describe_error

STOPPED: Final = "the {name} tracker has stopped: {error}; {rest}the values are in events.jsonl"


class Delivery:
    """Passes what a run reports to one tracker, in order, on a thread of its own."""

    def __init__(self, name: str, tracker: Tracker, run: RunDescription) -> None:
        """Start the thread; `name` is that of the tracker."""
        self.name = name
        self.notices: queue.SimpleQueue[str] = queue.SimpleQueue()  # sentences for the user
        self.evaluations = self.stored = 0
        self._tracker, self._run = tracker, run
        self._items: queue.SimpleQueue[Point | RunResult] = queue.SimpleQueue()
        self._ending = self._abandoned = False
        # Not the end of the thread: in Python 3.11, a thread whose join is interrupted by Ctrl-C
        # counts as ended.
        self._done = threading.Event()
        # A daemon: a tracker that never returns does not keep the process from ending.
        threading.Thread(target=self._work, name=f"tracker {name}", daemon=True).start()

    def log(self, point: Point) -> None:
        """Put the values of an evaluation into the queue."""
        self.evaluations += 1
        self._items.put(point)

    def finish(self, result: RunResult) -> None:
        """Put the result into the queue, after which nothing follows."""
        self._ending = True
        self._items.put(result)

    def join(self, timeout_s: float) -> bool:
        """Wait until the result is stored, or the tracker has stopped; return whether it has."""
        return self._done.wait(timeout_s)

    def abandon(self) -> None:
        """End the tracker now."""
        self._abandoned = True
        self._tracker.abandon()

    def _work(self) -> None:
        try:
            if sentence := self._tracker.start(self._run):
                self.notices.put(sentence)
            result = None
            while result is None:
                points, result = self._waiting()
                if points:
                    self._tracker.log(points)
                    self.stored += len(points)
            self._tracker.finish(result)
        except BaseException as error:
            self._tracker.abandon()
            if not self._abandoned:
                rest = "" if self._ending else "training continues; "
                text = describe_error(error, os.environ)
                self.notices.put(STOPPED.format(name=self.name, error=text, rest=rest))
        finally:
            self._done.set()

    def _waiting(self) -> tuple[list[Point], RunResult | None]:
        """What is in the queue: evaluations, and the result once it is there; waits for one."""
        points: list[Point] = []
        item = self._items.get()
        while not isinstance(item, RunResult):
            points.append(item)
            if len(points) == MAX_POINTS or self._items.empty():
                return points, None
            item = self._items.get()
        return points, item
