"""An engine that computes nothing: its leases take the time that its speed implies."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from hogbatch.simulate.engine import Host, Prepared
from hogbatch.simulate.speed import EVALUATION_SPEEDUP, Speed
from hogbatch.wire.messages import Done, Ready, Welcome, Work


@dataclass(slots=True, eq=False)
class SpeedEngine:
    """Leases one after the other, each in the time of `speed` with random noise.

    `deadly_row` returns the first row of a lease that kills the worker, None without one.
    """

    speed: Speed
    rng: Random
    deadly_row: Callable[[Work], int | None] = lambda work: None
    threads: int = 1
    slowdown: float = 1.0  # factor of its usual times
    misreports: bool = False  # its next Done reports wrong rows
    hung: bool = False  # the lease in progress is its last; deadly rows still kill it
    _host: Host = field(init=False)
    _works: deque[Work] = field(default_factory=deque)

    @property
    def device(self) -> Literal["cpu", "gpu", "server"]:
        return self.speed.device

    @property
    def label(self) -> str:
        return self.speed.device

    def prepare(self, welcome: Welcome, host: Host) -> Prepared:
        self._host = host
        self._welcomed(welcome)
        seconds = self.speed.startup * self.rng.uniform(0.5, 1.5)
        return Prepared(seconds, Ready(self.speed.profile(), teams=self.threads))

    def _welcomed(self, welcome: Welcome) -> None:
        """The worker is admitted."""

    def _trained(self, work: Work, rows: int) -> None:
        """The first `rows` of a training lease are done."""

    def submit(self, work: Work) -> None:
        self._works.append(work)
        if len(self._works) == 1:
            self._begin()

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
        deadly = self.deadly_row(work)
        if deadly is not None:
            part = (deadly - work.start) / (work.stop - work.start)
            self._host.later(part * seconds, lambda: self._host.exit("killed by SIGSEGV"))
        elif not self.hung:
            self._host.later(seconds, lambda: self._finish(work, rows, seconds))

    def _fitting(self, work: Work) -> int:
        """Rows that it can do before a batch does not fit into memory."""
        size, memory = min(work.batch_size, work.stop - work.start), self.speed.memory
        if memory is None or size <= memory:
            return work.stop - work.start
        return self.rng.randrange(work.stop - work.start)

    def _finish(self, work: Work, rows: int, seconds: float) -> None:
        self._works.popleft()
        if self._host.fence == work.fence:
            self._host.post(self._done(work, rows, seconds))
        if self._works:
            self._begin()

    def _done(self, work: Work, rows: int, seconds: float) -> Done:
        if work.task == "train":
            self._trained(work, rows)
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
