"""Cores that threads take turns on in simulated time, and the random variation of times."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from hogbatch.simulate.event_queue import EventQueue

Action = Callable[[], object]
NEVER = float("inf")
LEAST = 0.2  # of the usual time, with random variation


@dataclass(slots=True)
class _Core:
    """One core, and the threads that wait for it."""

    waiting: deque[int] = field(default_factory=deque)
    running: int | None = None
    slice_ends: float = NEVER


class Cores:
    """`cores` cores that run any number of threads.

    Thread t runs on core t mod cores. Threads of one core take turns: a thread runs until it has
    nothing to do or has used its time slice while others wait, as under the scheduler of Linux.
    """

    def __init__(self, cores: int, slice_seconds: float, queue: EventQueue) -> None:
        self._cores = [_Core() for _ in range(cores)]
        self._slice, self._queue = slice_seconds, queue
        self._work: dict[int, tuple[float, Action]] = {}  # thread → seconds left, what follows

    def run(self, thread: int, seconds: float, then: Action) -> None:
        """Run `thread` for `seconds` of a core's simulated time, then call `then`.

        A thread whose `then` calls `run` again keeps its core for the rest of its slice.
        """
        core = self._cores[thread % len(self._cores)]
        self._work[thread] = seconds, then
        if core.running is None:
            self._dispatch(core, thread)
        elif core.running != thread:
            core.waiting.append(thread)

    def run_together(self, threads: range, seconds: float, then: Action) -> None:
        """Run each of `threads` for `seconds`, and call `then` when the last one has ended.

        The others wait for it without using their cores.
        """
        remaining = len(threads)

        def end() -> None:
            nonlocal remaining
            remaining -= 1
            if remaining == 0:
                then()

        for thread in threads:
            self.run(thread, seconds, end)

    def _dispatch(self, core: _Core, thread: int) -> None:
        core.running, core.slice_ends = thread, self._queue.now + self._slice
        self._continue(core, thread)

    def _continue(self, core: _Core, thread: int) -> None:
        """Let the running thread compute until its work or its slice ends."""
        seconds, _ = self._work[thread]
        used = min(seconds, core.slice_ends - self._queue.now)
        self._queue.after(used, lambda: self._advance(core, thread, used))

    def _advance(self, core: _Core, thread: int, used: float) -> None:
        seconds, then = self._work.pop(thread)
        if used < seconds:
            self._work[thread] = seconds - used, then
        else:
            then()
        more = thread in self._work
        if core.waiting and not (more and self._queue.now < core.slice_ends):
            if more:
                core.waiting.append(thread)
            self._dispatch(core, core.waiting.popleft())
        elif more:
            if self._queue.now >= core.slice_ends:
                core.slice_ends = self._queue.now + self._slice
            self._continue(core, thread)
        else:
            core.running = None


@dataclass(frozen=True, slots=True)
class Noise:
    """Factors around 1 with the standard deviation `spread`.

    Without them, threads with equal batches would stay in step, unlike real threads.
    """

    rng: Random
    spread: float

    def factor(self, count: int = 1) -> float:
        """The next factor of the sum of `count` equal times."""
        return max(LEAST, self.rng.gauss(1.0, self.spread / count**0.5))
