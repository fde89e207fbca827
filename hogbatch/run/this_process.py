"""Training on one thread of the calling process, for small data.

A worker process takes more than a second to start, longer than small data take to train. Here no
process is started and no address is published. The coordinator, its messages and the kernels are
those of every run, so the results are those of a worker `cpu:1`.
"""

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from hogbatch.coordinator.adapters import ProcessAdapter
from hogbatch.errors import HogbatchError
from hogbatch.machine.pollable_queue import PollableQueue
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.version import version
from hogbatch.wire import messages
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.cpu import CpuEngine

KEY = "this process"  # of the only worker
PREPARATION = threading.Lock()  # two threads that compile kernels may block each other


def train_here(components: RunComponents, callbacks: Callbacks) -> Outcome:
    """Train until the coordinator finishes."""
    components.console.say("small data: training on one thread of this process")
    with closing(OwnThread(components.assign, components.segments.fingerprint)) as worker:
        return Outcome(*components.run_loop(worker, worker, callbacks))


class OwnThread(ProcessAdapter):
    """A worker on a thread of this process, as the coordinator's channel to it.

    It also stands for the worker processes, of which there are none. `assign` returns the
    assignment of a worker that a Welcome admits. `fingerprint` is that of the data.
    """

    def __init__(self, assign: Callable[[messages.Welcome], Assignment], fingerprint: str) -> None:
        self._failure: str | None = None
        self._assign = assign
        self._engine = CpuEngine(threads=1)
        self._posted = PollableQueue[messages.ToCoordinator | BaseException]()
        self._poll = select.poll()
        self.watch(self._posted.fd)
        self._beat_at = time.monotonic()
        self._beat_seconds = 1.0
        self._posted.put(
            messages.Hello(
                "cpu", self._engine.label, 1, os.getpid(), version(), fingerprint=fingerprint
            )
        )

    # The channel ----------------------------------------------------------------------------------

    def watch(self, fd: int) -> None:
        self._poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        self._poll.unregister(fd)

    def wait(self, timeout_s: float) -> list[int]:
        return [fd for fd, _ in self._poll.poll(round(1000 * timeout_s))]

    def receive(self) -> Iterator[tuple[str, messages.ToCoordinator]]:
        for posted in self._posted.taken():
            yield KEY, self._message(posted)
        if time.monotonic() >= self._beat_at:
            self._beat_at = time.monotonic() + self._beat_seconds
            yield KEY, messages.Heartbeat()

    def send(self, worker: str, message: messages.ToWorker) -> bool:
        match message:
            case messages.Welcome():
                self._beat_seconds = message.beat_seconds
                self._prepare(message)
            case messages.Lease():
                self._engine.submit(message)
            case messages.Refused(reason):
                self._posted.put(HogbatchError(reason))
            case messages.Stop():
                pass
        return True

    def close(self) -> None:
        """Wait until the thread has ended."""
        self._engine.close()
        self._posted.close()

    def _prepare(self, welcome: messages.Welcome) -> None:
        try:
            with PREPARATION:
                self._posted.put(self._engine.prepare(self._assign(welcome), self._posted.put))
        except Exception as error:
            self._posted.put(error)

    def _message(self, posted: messages.ToCoordinator | BaseException) -> messages.ToCoordinator:
        if not isinstance(posted, BaseException):
            return posted
        self._failure = f"{type(posted).__name__}: {posted}"[:1000]
        return messages.Failed(self._failure)

    # The processes --------------------------------------------------------------------------------

    def all_ended(self) -> str | None:
        return f"training has failed: {self._failure}" if self._failure else None
