"""The control plane of a worker: from Hello to Stop or Goodbye, with heartbeats.

A worker maps the shared memory, sends Hello, prepares, sends Ready, and works until it is stopped.
It computes in an `Engine`, on other threads, so that this thread can always receive messages and
send heartbeats.
"""

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from hogbatch.errors import HogbatchError, ProtocolError, UsageError
from hogbatch.jit import compiles
from hogbatch.machine.pollable_queue import PollableQueue
from hogbatch.model.network import Network
from hogbatch.store.attach import AttachedSegments
from hogbatch.store.dataset import EpochOrders, sets_of
from hogbatch.store.fence import Fences
from hogbatch.store.model import SharedModel
from hogbatch.store.paging import ReadAhead, unmap_regularly
from hogbatch.store.row_scores import row_scores
from hogbatch.version import version
from hogbatch.wire import messages
from hogbatch.wire.sockets import Dealer
from hogbatch.workers.compute.assignment import Assignment

BEAT_S = 1.0  # between heartbeats, until Welcome sets another interval
WELCOME_WITHIN_S = 30.0

Post = Callable[[messages.ToCoordinator | BaseException], None]  # an error fails the session


class Engine(Protocol):
    """The computing part of a worker. `prepare` runs on another thread, `submit` must not block."""

    device: str
    label: str  # for messages: "cpu:2", "gpu:0", "gpu:host"
    threads: int

    def prepare(self, assignment: Assignment, post: Post) -> messages.Ready:
        """Compile, allocate and measure; later results are passed to `post`, from any thread."""

    def submit(self, lease: messages.Lease) -> None:
        """Queue a lease."""


class Session:
    """The connection of a worker to one coordinator."""

    def __init__(self, end: Dealer, received: AttachedSegments, engine: Engine) -> None:
        self._end = end
        self._received = received
        self._engine = engine
        self._outbox = PollableQueue[messages.ToCoordinator | BaseException]()
        self._read_ahead: ReadAhead | None = None  # of rows on disk
        self._beat_s = BEAT_S
        self._beat_at = self._welcome_by = math.inf

    def run(self) -> None:
        """Work until Stop, `leave`, or the end of the coordinator process.

        UsageError if that process has ended before, ProtocolError if the coordinator refuses this
        worker or never answers; if the engine failed, its exception.
        """
        pid = self._received.manifest.pid
        try:
            coordinator = os.pidfd_open(pid)
        except ProcessLookupError:
            raise UsageError(f"the coordinator, process {pid}, has ended") from None
        for fd in (self._outbox.fd, coordinator):
            self._end.watch(fd)
        hello = messages.Hello(
            device="gpu" if self._engine.device == "gpu" else "cpu",
            name=self._engine.label,
            threads=self._engine.threads,
            pid=os.getpid(),
            package=version(),
            fingerprint=self._received.manifest.fingerprint,
        )
        self._send(hello)
        self._welcome_by = time.monotonic() + WELCOME_WITHIN_S
        while coordinator not in self._end.wait(max(0.0, self._beat_at - time.monotonic())):
            if self._send_due() or self._receive():
                return

    def _send_due(self) -> bool:
        """Send what was posted, and a Heartbeat when it is time; return True after Goodbye.

        Raises the error that ends the session, once Failed is sent.
        """
        for posted in self._outbox.taken():
            if isinstance(posted, BaseException):
                self._send(messages.Failed(f"{type(posted).__name__}: {posted}"[:1000]))
                raise posted
            self._send(posted)
            if isinstance(posted, messages.Failed):
                raise HogbatchError(posted.reason)
            if isinstance(posted, messages.Goodbye):
                return True
        if time.monotonic() >= self._beat_at:
            self._send(messages.Heartbeat(compiling=compiles()))
        return False

    def _send(self, message: messages.ToCoordinator) -> None:
        """Send a message. Any message shows that this worker is alive and delays the Heartbeat."""
        self._end.send(message)
        self._beat_at = time.monotonic() + self._beat_s

    def _receive(self) -> bool:
        """Process all messages received so far; return True after Stop."""
        while (message := self._end.receive()) is not None:
            match message:
                case messages.Stop():
                    return True
                case messages.Refused(reason):
                    raise ProtocolError(f"the coordinator refused this worker: {reason}")
                case messages.Welcome():
                    self._welcome_by = math.inf
                    self._beat_s = message.beat_seconds
                    threading.Thread(target=self._prepare, args=(message,), daemon=True).start()
                case messages.Lease():
                    if self._read_ahead and message.task == "train":
                        self._read_ahead.expect(message.epoch, message.start)
                    self._engine.submit(message)
        if time.monotonic() > self._welcome_by:
            raise ProtocolError(f"no answer from the coordinator in {WELCOME_WITHIN_S:.0f} s")
        return False

    def leave(self) -> None:
        """Request a Goodbye; may be called from a signal handler."""
        self._outbox.put(messages.Goodbye())

    def _prepare(self, welcome: messages.Welcome) -> None:
        try:
            assignment = assign(self._received, welcome)
            if assignment.on_disk and assignment.data is not None:
                unmap_regularly(assignment.data)
                rows = assignment.data, assignment.orders, assignment.train
                self._read_ahead = ReadAhead(*rows)
            self._outbox.put(self._engine.prepare(assignment, self._outbox.put))
        except BaseException as error:  # SystemExit too: the coordinator must be informed
            self._outbox.put(error)


def assign(received: AttachedSegments, welcome: messages.Welcome) -> Assignment:
    """Combine the shared memory with the contents of Welcome."""
    data, shared = received.segments["data"], received.segments["shared"]
    features = received.manifest.features
    return Assignment(
        welcome=welcome,
        network=Network.described(features, welcome.layers, welcome.loss, welcome.backbone),
        sets=sets_of(data, features),
        orders=EpochOrders.attach(shared),
        model=SharedModel.of(shared),
        fence=Fences.of(shared).line(welcome.worker),
        data=data,
        scores=row_scores(shared),
    )
