"""Workers that compute nothing: their leases take the time that their speed implies."""

import re
from collections import deque
from dataclasses import dataclass, field
from random import Random

from hogbatch.errors import UsageError
from hogbatch.simulate.worker import Device, SimulatedEngine, SimulatedWorker
from hogbatch.wire.messages import Done, Lease, Ready, Welcome

EXAMPLE = "cpu:16x2000rows/s,gpu:1x200000rows/s@half=256"
GPU_HALF = 256.0  # rows
MEASURED = [2**power for power in range(4, 17)]  # rows of the batches that a GPU worker measures
EVALUATION_SPEEDUP = 3.0  # over training, since there is no backward pass
MAX_WORKERS = 16_384


@dataclass(frozen=True, slots=True)
class Speed:
    """`peak` rows per second with large batches. A batch of b rows takes (b + half) / peak seconds,
    so batches of `half` rows reach half of the peak.
    """

    device: Device
    peak: float
    half: float = 0.0
    startup: float = 1.0  # seconds from Welcome to Ready
    spread: float = 0.05  # standard deviation of a lease's time, as a fraction of it

    def seconds(self, rows: int, batch_size: int) -> float:
        """Time to train on `rows` rows in batches of `batch_size`."""
        return (rows + -(-rows // batch_size) * self.half) / self.peak

    def profile(self) -> tuple[tuple[int, float], ...]:
        """The profile that a worker sends in Ready: rows of a batch, and its seconds."""
        if self.device == "cpu":
            return ()
        return tuple((rows, self.seconds(rows, rows)) for rows in MEASURED)


def parse_workers(text: str) -> list[tuple[int, Speed]]:
    """Parse "cpu:16x2000rows/s,gpu:1x200000rows/s@half=256" into numbers of workers and speeds."""
    workers = [_parse(part.strip()) for part in text.split(",")]
    if sum(count for count, _ in workers) > MAX_WORKERS:
        raise UsageError(f"workers: expected at most {MAX_WORKERS}; got {text!r}")
    return workers


def _parse(part: str) -> tuple[int, Speed]:
    number = r"\d+(?:\.\d*)?(?:e\d+)?"
    match = re.fullmatch(rf"(cpu|gpu):(\d+)x({number})rows/s(?:@half=({number}))?", part)
    if match is None or int(match[2]) < 1 or not 0 < float(match[3]) < 1e12:
        raise UsageError(f"workers: expected a list such as {EXAMPLE!r}; got {part!r}")
    device: Device = "gpu" if match[1] == "gpu" else "cpu"
    usual = GPU_HALF if device == "gpu" else 0.0
    half = usual if match[4] is None else float(match[4])
    return int(match[2]), Speed(device, float(match[3]), half)


@dataclass(eq=False)
class SpeedEngine(SimulatedEngine):
    """Leases one after the other, each in the time of `speed` with random noise."""

    speed: Speed
    rng: Random
    _host: SimulatedWorker = field(init=False)
    _queue: deque[Lease] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.device = self.label = self.speed.device

    def prepare(self, welcome: Welcome, host: SimulatedWorker) -> tuple[float, Ready]:
        self._host = host
        seconds = self.speed.startup * self.rng.uniform(0.5, 1.5)
        return seconds, Ready(self.speed.profile(), teams=self.threads)

    def submit(self, lease: Lease) -> None:
        self._queue.append(lease)
        if len(self._queue) == 1:
            self._begin()

    def _begin(self) -> None:
        lease = self._queue[0]
        seconds = self._seconds(lease)
        self._host.later(seconds, lambda: self._finish(self._done(lease, seconds)))

    def _seconds(self, lease: Lease) -> float:
        """Time that `lease` takes."""
        rows = lease.stop - lease.start
        usual = self.speed.seconds(rows, min(lease.batch_size, rows))
        noise = max(0.2, self.rng.gauss(1.0, self.speed.spread))
        return noise * usual / (1.0 if lease.task == "train" else EVALUATION_SPEEDUP)

    def _done(self, lease: Lease, seconds: float) -> Done:
        rows = lease.stop - lease.start
        return Done(
            lease=lease.number,
            rows=rows,
            updates=-(-rows // lease.batch_size),
            seconds=seconds,
            loss=0.5 * rows,
            skipped=0,
            metric_sums=(),
        )

    def _finish(self, done: Done) -> None:
        """Report the first lease, unless its rows were taken back, and begin the next one."""
        lease = self._queue.popleft()
        if self._host.fence == lease.fence:
            self._host.post(done)
        if self._queue:
            self._begin()
