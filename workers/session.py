"""A worker's life: map the shared memory, say hello, get ready, work until told to stop.

This module covers the control plane, heartbeats and the ways to leave. It does *not* compute:
that is an `Engine`'s, on threads of its own, so that this thread can always listen and beat.
"""

import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples
from hogbatch.errors import HogbatchError, ProtocolError
from hogbatch.jit import compiles
from hogbatch.model.footprint import EVALUATED, Problem, most_listed
from hogbatch.model.network import DenseLayer, Network
from hogbatch.store.dataset import EpochOrders, test_of, train_of
from hogbatch.store.fence import Fences
from hogbatch.store.model import SharedModel
from hogbatch.store.segment_server import FetchedSegments
from hogbatch.wire.channel import WorkerChannel
from hogbatch.wire.messages import (
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    Ready,
    Refused,
    Stop,
    ToCoordinator,
    Welcome,
    Work,
)

BEAT_S = 1.0  # until the Welcome says otherwise
WELCOME_WITHIN_S = 30.0

Profile = tuple[tuple[int, float], ...]
Post = Callable[[ToCoordinator | BaseException], None]  # an error ends the session


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker was given to work on; all arrays lie in shared memory."""

    welcome: Welcome
    network: Network
    train: Examples
    test: Examples | None
    orders: EpochOrders
    model: SharedModel
    fence: NDArray[np.int64]  # [8], this worker's line: it may write while [0] shows Work.fence


class Engine(Protocol):
    """What computes. `prepare` runs on a thread of its own, `submit` must return at once."""

    device: str
    label: str  # for people: "cpu", "gpu:0", "gpu:host"
    threads: int

    def prepare(self, assignment: Assignment, post: Post) -> Profile:
        """Compile, allocate, measure; afterwards results go to `post`, from any thread."""

    def submit(self, work: Work) -> None:
        """Queue a lease."""


class Session:
    """One attachment to one coordinator."""

    def __init__(self, end: WorkerChannel, received: FetchedSegments, engine: Engine) -> None:
        self._end = end
        self._received = received
        self._engine = engine
        self._outbox: queue.SimpleQueue[ToCoordinator] = queue.SimpleQueue()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._leaving = False
        self._failure: BaseException | None = None
        self._beat_s = BEAT_S
        self._beat_at = self._welcome_by = math.inf

    def run(self) -> None:
        """Work until Stop, `leave` or the coordinator's end.

        Raises ProtocolError if the coordinator refuses this worker or never answers, and what the
        engine raised if it failed.
        """
        coordinator = os.pidfd_open(self._received.coordinator_pid)
        for fd in (self._wakeup, coordinator):
            self._end.watch(fd)
        self._send(self._hello())
        self._welcome_by = time.monotonic() + WELCOME_WITHIN_S
        while coordinator not in self._end.wait(max(0.0, self._beat_at - time.monotonic())):
            if self._speak() or self._listen():
                return

    def _hello(self) -> Hello:
        return Hello(
            device="gpu" if self._engine.device == "gpu" else "cpu",
            name=self._engine.label,
            threads=self._engine.threads,
            pid=os.getpid(),
            package=version("hogbatch"),
            fingerprint=self._received.manifest.fingerprint,
        )

    def _speak(self) -> bool:
        """Send results, and Goodbye or a Heartbeat when it is time; True after Goodbye."""
        leaving = self._leaving  # read first: what was posted by then goes before Goodbye
        if failure := self._send_results():
            raise failure
        if leaving:
            self._send(Goodbye())
        elif time.monotonic() >= self._beat_at:
            self._send(Heartbeat(compiling=compiles()))
        return leaving

    def _send(self, message: ToCoordinator) -> None:
        """Any message says that this worker is alive: the next Heartbeat can wait."""
        self._end.send(message)
        self._beat_at = time.monotonic() + self._beat_s

    def _listen(self) -> bool:
        """Take in all messages that have come; True after Stop."""
        while (message := self._end.receive()) is not None:
            match message:
                case Stop():
                    return True
                case Refused(reason):
                    raise ProtocolError(f"the coordinator refused this worker: {reason}")
                case Welcome():
                    self._welcome_by = math.inf
                    self._beat_s = message.beat_seconds
                    threading.Thread(target=self._prepare, args=(message,), daemon=True).start()
                case Work():
                    self._engine.submit(message)
        if time.monotonic() > self._welcome_by:
            raise ProtocolError(f"no answer from the coordinator in {WELCOME_WITHIN_S:.0f} s")
        return False

    def leave(self) -> None:
        """Say goodbye soon; may be called from a signal handler."""
        self._leaving = True
        os.eventfd_write(self._wakeup, 1)

    def _prepare(self, welcome: Welcome) -> None:
        try:
            assignment = assign(self._received, welcome)
            self._post(Ready(self._engine.prepare(assignment, self._post)))
        except BaseException as error:  # SystemExit too: the coordinator must hear of it
            self._post(error)

    def _post(self, message: ToCoordinator | BaseException) -> None:
        if isinstance(message, BaseException):
            self._failure = message
            message = Failed(f"{type(message).__name__}: {message}"[:1000])
        self._outbox.put(message)
        os.eventfd_write(self._wakeup, 1)

    def _send_results(self) -> BaseException | None:
        """Send what was posted; return why the session must end, once a Failed has gone out."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wakeup)
        failure = None
        while not self._outbox.empty():
            message = self._outbox.get_nowait()
            if isinstance(message, Failed):
                failure = self._failure or HogbatchError(message.reason)
            self._send(message)
        return failure


def assign(received: FetchedSegments, welcome: Welcome) -> Assignment:
    """Bring together what the manifest and the Welcome say."""
    data, shared = received.segments["data"], received.segments["shared"]
    features = received.manifest.features
    layers = tuple(DenseLayer(*msgspec.structs.astuple(layer)) for layer in welcome.layers)
    return Assignment(
        welcome=welcome,
        network=Network(features, layers, welcome.loss),
        train=train_of(data, features),
        test=test_of(data, features),
        orders=EpochOrders.attach(shared),
        model=SharedModel.of(shared),
        fence=Fences.of(shared).line(welcome.worker),
    )


def problem_of(assignment: Assignment) -> Problem:
    """What the memory of a worker depends on."""
    train, model = assignment.train, assignment.model
    sets = (train,) if assignment.test is None else (train, assignment.test)
    return Problem(
        assignment.network,
        (model.first.size > 0) + (model.second.size > 0),
        sum(each.nbytes for each in sets),
        train.rows,
        train.sparse,
        stored=most_listed(train.inputs.indptr, EVALUATED),
        labels=most_listed(train.labels.indptr, EVALUATED),
        lsh=assignment.welcome.lsh,
    )


def leave_on_signals(session: Session, signals: tuple[signal.Signals, ...]) -> None:
    """Let the first of `signals` end the session politely."""
    for number in signals:
        signal.signal(number, lambda *_: session.leave())
