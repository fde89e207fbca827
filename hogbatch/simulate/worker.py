"""A simulated worker: sends what a real one would send, at the same times.

It is the counterpart of `hogbatch.workers.session.Session`; an engine computes. Messages arrive
late and in order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from hogbatch.wire.messages import (
    Done,
    Failed,
    FromServer,
    Heartbeat,
    Hello,
    Lease,
    Ready,
    Refused,
    Stop,
    ToCoordinator,
    ToServer,
    ToWorker,
    Welcome,
)

if TYPE_CHECKING:
    from hogbatch.simulate.world import World

DELAY_S = 50e-6  # mean of a message over ZeroMQ on one server
WELCOME_WITHIN_S = 30.0

Device = Literal["cpu", "gpu", "server"]


class SimulatedEngine(ABC):
    """The computing part of a worker: turns leases into results, at simulated times."""

    device: Device  # as in Hello
    label: str  # as in Hello.name: "cpu:2", "gpu:0"
    threads: int = 1  # that compute
    parts: tuple[int, ...] = ()  # of divided data that a server holds

    @abstractmethod
    def prepare(self, welcome: Welcome, host: "SimulatedWorker") -> tuple[float, Ready]:
        """Take part in the run of `welcome`; results are posted to `host`.

        Returns the seconds until the engine is ready for leases, and the message that says so.
        """

    @abstractmethod
    def submit(self, lease: Lease) -> None:
        """Queue a lease."""

    def serve(self, message: ToServer) -> None:
        """Take a step of a merge; only servers are asked to."""
        raise NotImplementedError(f"{self.label} is not a server")


@dataclass(slots=True)
class Link:
    """One direction of a connection."""

    rng: Random
    mean_delay: float = DELAY_S  # of an exponential distribution
    _last: float = 0.0

    def arrival(self, now: float) -> float:
        """When a message sent `now` arrives."""
        self._last = max(now + self.rng.expovariate(1 / self.mean_delay), self._last)
        return self._last


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """One worker process from its start to its exit, with its own connection."""

    environment: "World"
    pid: int
    engine: SimulatedEngine
    inbox: Link
    outbox: Link
    alive: bool = True
    number: int | None = None  # of its fence, once it is admitted
    beat_seconds: float = 1.0
    sent_at: float = 0.0  # when it last sent a message

    @property
    def key(self) -> str:
        """Its address on the control plane."""
        return f"w{self.pid}"

    # Life -----------------------------------------------------------------------------------

    def start(self) -> None:
        engine, run = self.engine, self.environment.state.plan.identity
        of_engine = engine.device, engine.label, engine.threads
        self._send(Hello(*of_engine, self.pid, run.package, run.fingerprint, engine.parts))
        self.later(self.beat_seconds, self._beat)
        self.later(WELCOME_WITHIN_S, self._expect_welcome)

    def receive(self, message: ToWorker) -> None:
        """Handle a message of the coordinator."""
        self.later(0.0, lambda: self._handle(message))

    def exit(self, cause: str | None = None) -> None:
        """Exit, because of `cause` unless that is intended.

        Messages that were sent before still arrive.
        """
        if self.alive:
            self.alive = False
            self.environment.exited(self, cause)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Run `action` in `seconds`, if it is alive."""

        def run() -> None:
            if self.alive:
                action()

        self.environment.queue.after(seconds, run)

    # The engine -----------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The simulated time, in seconds."""
        return self.environment.queue.now

    @property
    def fence(self) -> int | None:
        """The fence of this worker; None before it is admitted."""
        return None if self.number is None else self.environment.fence(self.number)

    def post(self, message: Done | Failed | FromServer) -> None:
        """Send a result of the engine; a worker that has failed exits."""
        self._send(message)
        if isinstance(message, Failed):
            self.exit(message.reason)

    # Messages -------------------------------------------------------------------------------

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Welcome(worker=number, beat_seconds=seconds):
                self.number, self.beat_seconds = number, seconds
                startup, ready = self.engine.prepare(message, self)
                self.later(startup, lambda: self._send(ready))
            case Lease():
                self.engine.submit(message)
            case Stop() | Refused():
                self.exit()
            case _:
                self.engine.serve(message)

    def _expect_welcome(self) -> None:
        if self.number is None:
            self.exit("exit code 4")

    def _beat(self) -> None:
        due = self.sent_at + self.beat_seconds - self.environment.queue.now
        if due <= 0.0:
            self._send(Heartbeat())
        self.later(due if due > 0.0 else self.beat_seconds, self._beat)

    def _send(self, message: ToCoordinator) -> None:
        self.sent_at = self.environment.queue.now
        self.environment.send_to_coordinator(self, message)
