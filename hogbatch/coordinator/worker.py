"""One worker as the coordinator sees it."""

import math
from dataclasses import dataclass, field
from typing import Literal

from hogbatch.coordinator.plan import Limits
from hogbatch.coordinator.trace import Trace
from hogbatch.policy.base import WorkerView
from hogbatch.policy.throughput import SecondsPerRow, useful_limits
from hogbatch.telemetry.records import WorkerRecord
from hogbatch.wire.messages import Done, Heartbeat, Work

Profile = tuple[tuple[int, float], ...]  # (rows of a batch, seconds), as measured

EVALUATION_BATCH = 256  # rows of a CPU worker's evaluation batch
ON_TRIAL = 2  # deaths of workers on the same rows; from now on it must be clear what did it
WITHIN_MEMORY = 0.9  # of a batch that was too large: the most that is tried afterwards


@dataclass(slots=True)
class Lease:
    """Rows [start, stop) that one Work handed out."""

    number: int
    task: Literal["train", "evaluate"]
    start: int
    stop: int
    batch_size: int
    deaths: int = 0  # of workers that had these rows
    due: float = math.inf  # by the caller's clock; then its worker is given up

    def objection(self, done: Done) -> str:
        """Why `done` cannot be said of this lease, or its worker be kept; empty if it can."""
        rows = self.stop - self.start
        if done.rows > rows or (done.rows < rows and not done.too_large):
            return f"did {done.rows} rows of lease {done.lease}"
        if done.refused > done.rows:
            return f"refused {done.refused} merges of {done.rows} rows"
        if self.beyond_memory(done) == 1:
            return "its device has no memory for a batch of one row"
        return ""

    def beyond_memory(self, done: Done) -> int:
        """Rows of the batch of this lease that its device had no memory for; 0 if all fitted."""
        return min(done.too_large, self.batch_size)


@dataclass(slots=True)
class Worker:
    """What is known of one attached worker."""

    key: str  # its address on the control plane
    number: int  # its line among the fences
    name: str
    device: str
    threads: int
    pid: int
    fence: int  # value under which it may write
    last_seen: float
    admitted_at: float = 0.0  # by the caller's clock
    beat_seconds: float = 1.0  # within which it says something
    ready: bool = False
    compiling: bool = False  # it has said so
    limits: tuple[int, int] = (1, 1)
    fitting: int | None = None  # most rows of a batch that may fit its memory; None: not known
    leases: dict[int, Lease] = field(default_factory=dict)
    batch_size: int = 0
    rows: int = 0
    updates: int = 0
    stale: float = 0.0  # staleness, summed over its merges
    active: float = 0.0  # neurons of a hashed output layer, summed over its updates
    head_start: float = 0.0  # updates it is credited with for having joined late
    busy_seconds: float = 0.0
    joined_at: float = 0.0  # training seconds at its Ready
    left_at: float | None = None  # and at its end
    speed: SecondsPerRow = field(default_factory=SecondsPerRow)
    tested: SecondsPerRow = field(default_factory=SecondsPerRow)  # the same in evaluation
    batch_trace: Trace = field(default_factory=Trace)
    update_trace: Trace = field(default_factory=Trace)

    def view(self) -> WorkerView:
        """What a policy may see."""
        return WorkerView(
            self.device,
            self.threads,
            *self.limits,
            self.batch_size,
            self.head_start + self.updates,
            self.speed.value,
        )

    def begins_to_compile(self, beat: Heartbeat) -> bool:
        """Whether `beat` is the first to say that its kernels are compiled."""
        begins = beat.compiling and not self.compiling and not self.ready
        self.compiling |= begins
        return begins

    def limit(self, given: Limits, profile: Profile) -> str:
        """Keep its batches within the limits given, or those it has measured; or why that fails."""
        limits = given.cpu if self.device == "cpu" else given.gpu
        if limits is None:
            if not any(rows > 0 and seconds > 0 for rows, seconds in profile):
                return "sent no measured batch sizes"
            limits = useful_limits(profile)
        self.limits = limits
        return ""

    @property
    def evaluation_batch(self) -> int:
        """Rows of a batch that only reads the model."""
        usual = EVALUATION_BATCH if self.device == "cpu" else self.limits[1]
        return usual if self.fitting is None else max(1, min(usual, self.fitting // 2))

    @property
    def staleness(self) -> float | None:
        """Updates of others between pull and merge, mean over its merges; None without any."""
        return self.stale / self.updates if self.device == "gpu" and self.updates else None

    @property
    def on_trial(self) -> bool:
        """Whether it has rows on which one more death is too many; then it is given no more."""
        return any(lease.deaths >= ON_TRIAL for lease in self.leases.values())

    def expected_seconds(self, lease: Lease) -> float:
        """How long `lease` should take; nan while its speed at such work is unknown."""
        speed = self.speed if lease.task == "train" else self.tested
        return (lease.stop - lease.start) * speed.value

    def account(
        self, lease: Lease, done: Done, rows: tuple[int, int], epoch: int, seconds: float
    ) -> dict[str, object]:
        """What the event log says of a lease that is done, at training second `seconds`."""
        fields: dict[str, object] = {
            "seconds": round(seconds, 4),
            "epoch": epoch,
            "rows": list(rows),
            "worker": self.name,
            "batch_size": lease.batch_size,
            "updates": done.updates,
        }
        if self.device == "gpu":
            fields["staleness"] = round(done.staleness, 4)
        return fields

    def take(self, lease: Lease, epoch: int, learning_rate: float, rollbacks: int = 0) -> Work:
        """Hold `lease`; the message that says so."""
        self.leases[lease.number] = lease
        return Work(
            lease=lease.number,
            task=lease.task,
            epoch=epoch,
            start=lease.start,
            stop=lease.stop,
            batch_size=lease.batch_size,
            learning_rate=learning_rate,
            fence=self.fence,
            rollbacks=rollbacks,
        )

    def add(self, done: Done) -> None:
        """Take in one lease it has trained on."""
        self.rows += done.rows
        self.updates += done.updates
        self.stale += done.staleness * done.updates
        self.active += done.active * done.updates
        self.busy_seconds += done.seconds
        if done.rows:
            self.speed.add(done.seconds, done.rows)

    def resize(self, size: int, seconds: float) -> None:
        """Use batches of `size` rows from now on, within the limits."""
        smallest, largest = self.limits
        size = int(min(max(smallest, size), largest))  # in this order, nan gives the smallest
        if size != self.batch_size:
            self.batch_size = size
            self.batch_trace.add(seconds, size)

    def shrink(self, too_large: int, seconds: float) -> bool:
        """Stay below `too_large` rows a batch, which its device has no memory for, from now on.

        False if that is so already.
        """
        most = max(1, int(WITHIN_MEMORY * too_large))
        if self.fitting is not None and most >= self.fitting:
            return False
        self.fitting = most
        self.limits = (min(self.limits[0], most), min(self.limits[1], most))
        self.resize(min(self.batch_size, too_large // 2), seconds)
        return True

    def record(self, seconds: float, all_updates: int) -> WorkerRecord:
        """Its account at training second `seconds`."""
        attached = (seconds if self.left_at is None else self.left_at) - self.joined_at
        return WorkerRecord(
            name=self.name,
            device=self.device,
            threads=self.threads,
            rows=self.rows,
            updates=self.updates,
            update_share=self.updates / all_updates if all_updates else 0.0,
            busy=min(1.0, self.busy_seconds / attached) if attached > 0 else 0.0,
            left_at=self.left_at,
            batch_size=self.batch_size,
            batch_trace=list(self.batch_trace.points),
            update_trace=list(self.update_trace.points),
            staleness=self.staleness,
            active=self.active / self.updates if self.active else None,
        )
