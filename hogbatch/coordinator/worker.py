"""One worker as the coordinator sees it."""

from dataclasses import dataclass, field
from typing import Literal

from hogbatch.policy.base import WorkerView
from hogbatch.policy.throughput import SecondsPerRow
from hogbatch.telemetry.records import WorkerRecord
from hogbatch.wire.messages import Done, Work

EVALUATION_BATCH = 256  # rows of a CPU worker's evaluation batch


@dataclass(frozen=True, slots=True)
class Lease:
    """Rows [start, stop) that one Work handed out."""

    number: int
    task: Literal["train", "evaluate"]
    start: int
    stop: int
    batch_size: int


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
    ready: bool = False
    limits: tuple[int, int] = (1, 1)
    leases: dict[int, Lease] = field(default_factory=dict)
    batch_size: int = 0
    rows: int = 0
    updates: int = 0
    head_start: float = 0.0  # updates it is credited with for having joined late
    busy_seconds: float = 0.0
    joined_at: float = 0.0  # training seconds at its Ready
    left_at: float | None = None  # and at its end
    speed: SecondsPerRow = field(default_factory=SecondsPerRow)
    batch_trace: list[tuple[float, int]] = field(default_factory=list)
    update_trace: list[tuple[float, int]] = field(default_factory=list)

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

    @property
    def evaluation_batch(self) -> int:
        """Rows of a batch that only reads the model."""
        return EVALUATION_BATCH if self.device == "cpu" else self.limits[1]

    def take(self, lease: Lease, epoch: int, learning_rate: float) -> Work:
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
        )

    def add(self, done: Done) -> None:
        """Take in one lease it has trained on."""
        self.rows += done.rows
        self.updates += done.updates
        self.busy_seconds += done.seconds
        self.speed.add(done.seconds, done.rows)

    def resize(self, size: int, seconds: float) -> None:
        """Use batches of `size` rows from now on, within the limits."""
        smallest, largest = self.limits
        size = int(min(max(smallest, size), largest))  # in this order, nan gives the smallest
        if size != self.batch_size:
            self.batch_size = size
            self.batch_trace.append((round(seconds, 4), size))

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
            batch_trace=self.batch_trace,
            update_trace=self.update_trace,
        )
