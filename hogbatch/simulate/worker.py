"""A simulated worker: sends what a real one would send, at the same times."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.link_quality import Link, LinkQuality
from hogbatch.simulate.speed import EVALUATION_SPEEDUP, Speed
from hogbatch.wire.messages import (
    Done,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    Ready,
    Refused,
    Stop,
    ToCoordinator,
    ToWorker,
    Welcome,
    Work,
)

WELCOME_WITHIN_S = 30.0


class Environment(Protocol):
    """What a simulated worker interacts with."""

    queue: EventQueue
    package: str

    def send(self, worker: "SimulatedWorker", message: ToCoordinator) -> None:
        """Send `message` to the coordinator."""

    def fence(self, number: int) -> int:
        """The fence of worker `number` in shared memory."""

    def deadly_row(self, work: Work) -> int | None:
        """The first row of `work` that kills workers that train on it; None without one."""

    def exited(self, worker: "SimulatedWorker", cause: str) -> None:
        """The process of `worker` has exited; `cause` is empty if that was intended."""


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """One worker process from its start to its exit, with its own connection."""

    environment: Environment
    pid: int
    speed: Speed
    network: LinkQuality
    rng: Random
    alive: bool = True
    slowdown: float = 1.0  # factor of its usual times
    number: int | None = None  # of its fence, once it is admitted
    beat_seconds: float = 1.0
    sent_at: float = 0.0  # when it last sent a message
    finished: int = 0  # leases
    resumes_at: float = 0.0  # stopped until then
    hung: bool = False  # it sends heartbeats and does nothing else
    misreports: bool = False  # its next Done reports wrong rows
    inbox: Link = field(init=False)
    outbox: Link = field(init=False)
    _works: deque[Work] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.inbox, self.outbox = Link(self.network, self.rng), Link(self.network, self.rng)

    @property
    def key(self) -> str:
        """Its address on the control plane."""
        return f"w{self.pid}"

    # Life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the coordinator."""
        device = self.speed.device
        self._send(Hello(device, device, 1, self.pid, self.environment.package, ""))
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
        self.exit("")

    def fail(self) -> None:
        """Report an error and exit."""
        self._send(Failed("RuntimeError: simulated"))
        self.exit("exit code 1")

    def exit(self, cause: str) -> None:
        """Exit; messages that were sent before still arrive."""
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

    # Work -----------------------------------------------------------------------------------

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Welcome(worker=number, beat_seconds=seconds):
                self.number, self.beat_seconds = number, seconds
                startup = self.speed.startup * self.rng.uniform(0.5, 1.5)
                self.later(startup, self._become_ready)
            case Work():
                self._works.append(message)
                if len(self._works) == 1:
                    self._begin()
            case Stop() | Refused():
                self.exit("")

    def _expect_welcome(self) -> None:
        if self.number is None:
            self.exit("exit code 4")

    def _become_ready(self) -> None:
        if not self.hung:
            self._send(Ready(self.speed.profile()))

    def _begin(self) -> None:
        """Start the oldest lease."""
        work = self._works[0]
        rows = self._fitting(work)
        size = min(work.batch_size, work.stop - work.start)
        usual = self.speed.seconds(rows, size) / (
            EVALUATION_SPEEDUP if work.task == "evaluate" else 1.0
        )
        noise = max(0.2, self.rng.gauss(1.0, self.speed.spread))
        seconds = usual * self.slowdown * noise
        deadly = self.environment.deadly_row(work)
        if deadly is not None:
            part = (deadly - work.start) / (work.stop - work.start)
            self.later(part * seconds, lambda: self.exit("killed by SIGSEGV"))
        elif not self.hung:
            self.later(seconds, lambda: self._finish(work, rows, seconds))

    def _fitting(self, work: Work) -> int:
        """Rows that it can do before a batch does not fit into memory."""
        size, memory = min(work.batch_size, work.stop - work.start), self.speed.memory
        if memory is None or size <= memory:
            return work.stop - work.start
        return self.rng.randrange(work.stop - work.start)

    def _finish(self, work: Work, rows: int, seconds: float) -> None:
        self._works.popleft()
        if self.number is not None and self.environment.fence(self.number) == work.fence:
            self.finished += 1
            self._send(self._done(work, rows, seconds))
        if self._works:
            self._begin()

    def _done(self, work: Work, rows: int, seconds: float) -> Done:
        misreported, self.misreports = self.misreports, False
        return Done(
            lease=work.lease,
            rows=rows + 1 if misreported else rows,
            updates=-(-rows // work.batch_size),
            seconds=seconds,
            loss=0.5 * rows,
            skipped=0,
            metric_sums=(),
            too_large=0 if rows == work.stop - work.start else work.batch_size,
        )

    def _beat(self) -> None:
        due = self.sent_at + self.beat_seconds - self.environment.queue.now
        if due <= 0.0:
            self._send(Heartbeat())
        self.later(due if due > 0.0 else self.beat_seconds, self._beat)

    def _send(self, message: ToCoordinator) -> None:
        self.sent_at = self.environment.queue.now
        self.environment.send(self, message)
