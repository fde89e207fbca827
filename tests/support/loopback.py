"""The control plane within one process: both channels over queues.

Frames are encoded and decoded as on a socket, so tests that use the loopback also test the codec.
"""

import os
import select
from collections import deque
from collections.abc import Iterator

from hogbatch.wire.codec import decode_to_coordinator, decode_to_worker, encode
from hogbatch.wire.messages import ToCoordinator, ToWorker


class _Mailbox:
    """A queue of frames with a descriptor that is readable while it is not empty."""

    def __init__(self) -> None:
        self.frames: deque[tuple[str, bytes]] = deque()
        self.wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.poll = select.poll()
        self.poll.register(self.wakeup, select.POLLIN)

    def __del__(self) -> None:
        os.close(self.wakeup)

    def put(self, sender: str, frame: bytes) -> None:
        self.frames.append((sender, frame))
        os.eventfd_write(self.wakeup, 1)

    def wait(self, timeout_s: float) -> list[int]:
        ready = [fd for fd, _ in self.poll.poll(max(0, round(timeout_s * 1000)))]
        if self.wakeup in ready:
            os.eventfd_read(self.wakeup)
        return [fd for fd in ready if fd != self.wakeup]


class Loopback:
    """The coordinator's channel; `connect` creates the workers' channels."""

    def __init__(self) -> None:
        self.refused = 0
        self._inbox = _Mailbox()
        self._workers: dict[str, _Mailbox] = {}

    def connect(self, name: str) -> "LoopbackWorker":
        """Return the channel of a worker whose key is `name`."""
        self._workers[name] = _Mailbox()
        return LoopbackWorker(name, self._workers[name], self._inbox)

    def watch(self, fd: int) -> None:
        self._inbox.poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        self._inbox.poll.unregister(fd)

    def wait(self, timeout_s: float) -> list[int]:
        return self._inbox.wait(0 if self._inbox.frames else timeout_s)

    def receive(self) -> Iterator[tuple[str, ToCoordinator]]:
        while self._inbox.frames:
            sender, frame = self._inbox.frames.popleft()
            yield sender, decode_to_coordinator(frame)

    def send(self, worker: str, message: ToWorker) -> bool:
        if worker not in self._workers:
            return False
        self._workers[worker].put("", encode(message))
        return True

    def close(self) -> None:
        self._workers.clear()


class LoopbackWorker:
    """A worker's channel of a :class:`Loopback`."""

    def __init__(self, name: str, inbox: _Mailbox, coordinator: _Mailbox) -> None:
        self.name = name
        self._inbox = inbox
        self._coordinator = coordinator

    def watch(self, fd: int) -> None:
        self._inbox.poll.register(fd, select.POLLIN)

    def wait(self, timeout_s: float) -> list[int]:
        return self._inbox.wait(0 if self._inbox.frames else timeout_s)

    def receive(self) -> ToWorker | None:
        if not self._inbox.frames:
            return None
        _, frame = self._inbox.frames.popleft()
        return decode_to_worker(frame)

    def send(self, message: ToCoordinator) -> None:
        self._coordinator.put(self.name, encode(message))

    def close(self) -> None:
        pass
