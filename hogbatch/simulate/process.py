"""A simulated worker: says what a real one says, at the times at which it would."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.link_quality import Link, LinkQuality
from hogbatch.simulate.speed import EVALUATION, Speed
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
    """What a worker meets outside itself."""

    queue: EventQueue
    package: str

    def say(self, worker: "SimulatedWorker", message: ToCoordinator) -> None:
        """Put `message` on the way to the coordinator."""

    def fence(self, number: int) -> int:
        """The fence of worker `number` in shared memory."""

    def deadly(self, work: Work) -> int | None:
        """The first row of `work` that kills whoever trains on it."""

    def ended(self, worker: "SimulatedWorker", cause: str) -> None:
        """The process is gone."""


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """One process from its start to its end; its connection has a key of its own."""

    adapters: Environment
    pid: int
    speed: Speed
    network: LinkQuality
    rng: Random
    alive: bool = True
    slow: float = 1.0  # times as long as usual
    number: int | None = None  # once it is taken in
    beat_seconds: float = 1.0
    said_at: float = 0.0  # when it last said something
    finished: int = 0  # leases
    awake_at: float = 0.0  # stopped until then
    hung: bool = False  # it beats, and does nothing else
    lies: bool = False  # its next Done is nonsense
    inbox: Link = field(init=False)
    outbox: Link = field(init=False)
    _works: deque[Work] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.inbox, self.outbox = Link(self.network, self.rng), Link(self.network, self.rng)

    @property
    def key(self) -> str:
        """Its address."""
        return f"w{self.pid}"

    # Life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        device = self.speed.device
        self._say(Hello(device, device, 1, self.pid, self.adapters.package, ""))
        self.later(self.beat_seconds, self._beat)
        self.later(WELCOME_WITHIN_S, self._expect_welcome)

    def hear(self, message: ToWorker) -> None:
        """Take in what the coordinator says, once it is awake."""
        self.later(0.0, lambda: self._take_in(message))

    def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after `seconds`."""
        self.awake_at = max(self.awake_at, self.adapters.queue.now + seconds)

    def leave(self) -> None:
        """Say Goodbye and go."""
        self._say(Goodbye())
        self.end("")

    def fail(self) -> None:
        """Report an error and end."""
        self._say(Failed("RuntimeError: simulated"))
        self.end("exit code 1")

    def end(self, cause: str) -> None:
        """Be gone; what was said before still arrives."""
        if self.alive:
            self.alive = False
            self.adapters.ended(self, cause)

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Do `act` in `seconds`, if it lives then, and not before it is awake."""
        queue = self.adapters.queue

        def wake() -> None:
            if self.alive and queue.now < self.awake_at:
                queue.at(self.awake_at, wake)
            elif self.alive:
                act()

        queue.after(seconds, wake)

    # Work -----------------------------------------------------------------------------------

    def _take_in(self, message: ToWorker) -> None:
        match message:
            case Welcome(worker=number, beat_seconds=seconds):
                self.number, self.beat_seconds = number, seconds
                startup = self.speed.startup * self.rng.uniform(0.5, 1.5)
                self.later(startup, self._get_ready)
            case Work():
                self._works.append(message)
                if len(self._works) == 1:
                    self._begin()
            case Stop() | Refused():
                self.end("")

    def _expect_welcome(self) -> None:
        if self.number is None:
            self.end("exit code 4")

    def _get_ready(self) -> None:
        if not self.hung:
            self._say(Ready(self.speed.profile()))

    def _begin(self) -> None:
        """Start on the oldest lease."""
        work = self._works[0]
        rows = self._fitting(work)
        size = min(work.batch_size, work.stop - work.start)
        usual = self.speed.seconds(rows, size) / (EVALUATION if work.task == "evaluate" else 1.0)
        noise = max(0.2, self.rng.gauss(1.0, self.speed.spread))
        seconds = usual * self.slow * noise
        deadly = self.adapters.deadly(work)
        if deadly is not None:
            part = (deadly - work.start) / (work.stop - work.start)
            self.later(part * seconds, lambda: self.end("killed by SIGSEGV"))
        elif not self.hung:
            self.later(seconds, lambda: self._finish(work, rows, seconds))

    def _fitting(self, work: Work) -> int:
        """Rows that it can do before a batch is too large."""
        size, memory = min(work.batch_size, work.stop - work.start), self.speed.memory
        if memory is None or size <= memory:
            return work.stop - work.start
        return self.rng.randrange(work.stop - work.start)

    def _finish(self, work: Work, rows: int, seconds: float) -> None:
        self._works.popleft()
        if self.number is not None and self.adapters.fence(self.number) == work.fence:
            self.finished += 1
            self._say(self._done(work, rows, seconds))
        if self._works:
            self._begin()

    def _done(self, work: Work, rows: int, seconds: float) -> Done:
        lie, self.lies = self.lies, False
        return Done(
            lease=work.lease,
            rows=rows + 1 if lie else rows,
            updates=-(-rows // work.batch_size),
            seconds=seconds,
            loss=0.5 * rows,
            skipped=0,
            metric_sums=(),
            too_large=0 if rows == work.stop - work.start else work.batch_size,
        )

    def _beat(self) -> None:
        due = self.said_at + self.beat_seconds - self.adapters.queue.now
        if due <= 0.0:
            self._say(Heartbeat())
        self.later(due if due > 0.0 else self.beat_seconds, self._beat)

    def _say(self, message: ToCoordinator) -> None:
        self.said_at = self.adapters.queue.now
        self.adapters.say(self, message)
