"""A simulated worker: sends what a real one would send, at the same times.

It is the counterpart of `hogbatch.workers.session.Session`; an engine computes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from hogbatch.simulate.engine import SimulatedEngine
from hogbatch.simulate.link_quality import Link, LinkQuality
from hogbatch.simulate.server_engine import ServerEngine
from hogbatch.wire.messages import (
    Done,
    Failed,
    FromServer,
    Goodbye,
    Heartbeat,
    Hello,
    Lease,
    Ready,
    Refused,
    Stop,
    ToCoordinator,
    ToWorker,
    Welcome,
)

if TYPE_CHECKING:
    from hogbatch.simulate.world import World

WELCOME_WITHIN_S = 30.0


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """One worker process from its start to its exit, with its own connection."""

    environment: "World[Any]"
    pid: int
    engine: SimulatedEngine
    network: LinkQuality
    rng: Random
    alive: bool = True
    number: int | None = None  # of its fence, once it is admitted
    beat_seconds: float = 1.0
    sent_at: float = 0.0  # when it last sent a message
    finished: int = 0  # leases
    resumes_at: float = 0.0  # stopped until then
    hung: bool = False  # it never becomes ready; leases are up to its engine
    inbox: Link = field(init=False)
    outbox: Link = field(init=False)

    def __post_init__(self) -> None:
        self.inbox, self.outbox = Link(self.network, self.rng), Link(self.network, self.rng)

    @property
    def key(self) -> str:
        """Its address on the control plane."""
        return f"w{self.pid}"

    # Life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the coordinator."""
        engine, (package, fingerprint) = self.engine, self.environment.identity
        parts = engine.parts if isinstance(engine, ServerEngine) else ()
        device, label, threads = engine.device, engine.label, engine.threads
        self._send(Hello(device, label, threads, self.pid, package, fingerprint, parts))
        self.later(self.beat_seconds, self._beat)
        self.later(WELCOME_WITHIN_S, self._expect_welcome)

    def receive(self, message: ToWorker) -> None:
        """Handle a message of the coordinator, once it is not stopped."""
        self.later(0.0, lambda: self._handle(message))

    def stop(self, seconds: float) -> None:
        """SIGSTOP, then SIGCONT after `seconds`."""
        self.resumes_at = max(self.resumes_at, self.environment.queue.now + seconds)

    def leave(self) -> None:
        """Send Goodbye and exit."""
        self._send(Goodbye())
        self.exit()

    def fail(self) -> None:
        """Report an error and exit."""
        self._send(Failed("RuntimeError: simulated"))
        self.exit("exit code 1")

    def exit(self, cause: str | None = None) -> None:
        """Exit, because of `cause` unless that is intended.

        Messages that were sent before still arrive.
        """
        if self.alive:
            self.alive = False
            self.environment.exited(self, cause)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Run `action` in `seconds`, if it is alive, and delayed while it is stopped."""
        queue = self.environment.queue

        def run() -> None:
            if self.alive and queue.now < self.resumes_at:
                queue.at(self.resumes_at, run)
            elif self.alive:
                action()

        queue.after(seconds, run)

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
        if isinstance(message, Done):
            self.finished += 1
        self._send(message)
        if isinstance(message, Failed):
            self.exit(message.reason)

    # Messages -------------------------------------------------------------------------------

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Welcome(worker=number, beat_seconds=seconds):
                self.number, self.beat_seconds = number, seconds
                prepared = self.engine.prepare(message, self)
                self.later(prepared.seconds, lambda: self._become_ready(prepared.ready))
            case Lease():
                self.engine.submit(message)
            case Stop() | Refused():
                self.exit()
            case _ if isinstance(self.engine, ServerEngine):
                self.engine.serve(message)

    def _expect_welcome(self) -> None:
        if self.number is None:
            self.exit("exit code 4")

    def _become_ready(self, ready: Ready) -> None:
        if not self.hung:
            self._send(ready)

    def _beat(self) -> None:
        due = self.sent_at + self.beat_seconds - self.environment.queue.now
        if due <= 0.0:
            self._send(Heartbeat())
        self.later(due if due > 0.0 else self.beat_seconds, self._beat)

    def _send(self, message: ToCoordinator) -> None:
        self.sent_at = self.environment.queue.now
        self.environment.send_to_coordinator(self, message)
