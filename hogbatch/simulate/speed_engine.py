"""An engine that computes nothing: its leases take the time that its speed implies."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from hogbatch.simulate.speed import EVALUATION_SPEEDUP, Speed
from hogbatch.simulate.worker import SimulatedEngine, SimulatedWorker
from hogbatch.wire.messages import Done, Lease, Ready, Welcome


@dataclass(eq=False)
class SpeedEngine(SimulatedEngine):
    """Leases one after the other, each in the time of `speed` with random noise.

    `deadly_row` returns the first row of a lease that kills the worker, None without one.
    """

    speed: Speed
    rng: Random
    deadly_row: Callable[[Lease], int | None] = lambda lease: None
    slowdown: float = 1.0  # factor of its usual times
    misreports: bool = False  # its next Done reports wrong rows
    hung: bool = False  # the lease in progress is its last; deadly rows still kill it
    _host: SimulatedWorker = field(init=False)
    _queue: deque[Lease] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.device = self.label = self.speed.device

    def prepare(self, welcome: Welcome, host: SimulatedWorker) -> tuple[float, Ready]:
        self._host = host
        self._welcomed(welcome)
        seconds = self.speed.startup * self.rng.uniform(0.5, 1.5)
        return seconds, Ready(self.speed.profile(), teams=self.threads)

    def _welcomed(self, welcome: Welcome) -> None:
        """The worker is admitted."""

    def _trained(self, lease: Lease, rows: int) -> None:
        """The first `rows` of a training lease are done."""

    def submit(self, lease: Lease) -> None:
        self._queue.append(lease)
        if len(self._queue) == 1:
            self._begin()

    def _begin(self) -> None:
        """Start the oldest lease."""
        lease = self._queue[0]
        rows = self._fitting(lease)
        size = min(lease.batch_size, lease.stop - lease.start)
        usual = self.speed.seconds(rows, size) / (
            EVALUATION_SPEEDUP if lease.task == "evaluate" else 1.0
        )
        noise = max(0.2, self.rng.gauss(1.0, self.speed.spread))
        seconds = usual * self.slowdown * noise
        deadly = self.deadly_row(lease)
        if deadly is not None:
            part = (deadly - lease.start) / (lease.stop - lease.start)
            self._host.later(part * seconds, lambda: self._host.exit("killed by SIGSEGV"))
        elif not self.hung:
            self._host.later(seconds, lambda: self._finish(lease, rows, seconds))

    def _fitting(self, lease: Lease) -> int:
        """Rows that it can do before a batch does not fit into memory."""
        size, memory = min(lease.batch_size, lease.stop - lease.start), self.speed.memory
        if memory is None or size <= memory:
            return lease.stop - lease.start
        return self.rng.randrange(lease.stop - lease.start)

    def _finish(self, lease: Lease, rows: int, seconds: float) -> None:
        self._queue.popleft()
        if self._host.fence == lease.fence:
            self._host.post(self._done(lease, rows, seconds))
        if self._queue:
            self._begin()

    def _done(self, lease: Lease, rows: int, seconds: float) -> Done:
        if lease.task == "train":
            self._trained(lease, rows)
        misreported, self.misreports = self.misreports, False
        return Done(
            lease=lease.number,
            rows=rows + 1 if misreported else rows,
            updates=-(-rows // lease.batch_size),
            seconds=seconds,
            loss=0.5 * rows,
            skipped=0,
            metric_sums=(),
            too_large=0 if rows == lease.stop - lease.start else lease.batch_size,
        )
