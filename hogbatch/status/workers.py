"""The workers of a run, as its events describe them."""

from dataclasses import dataclass, field

from hogbatch.status.series import Counter, keep_until
from hogbatch.telemetry.records import WorkerRecord
from hogbatch.telemetry.trace import Trace
from hogbatch.wire.messages import WorkerFigures


@dataclass(frozen=True, slots=True)
class LeaseDone:
    """The fields of an event "lease" that are used."""

    seconds: float
    epoch: int
    rows: tuple[int, int]
    worker: str
    batch_size: int
    updates: int
    staleness: float | None = None


class RecordedWorker(WorkerFigures, frozen=True):
    """A worker of a server in an event "server_workers"."""

    state: str  # another version may have other ones


@dataclass(frozen=True, slots=True)
class FiguresOfServer:
    """The fields of an event "server_workers"."""

    worker: str  # the server
    workers: list[RecordedWorker]
    others: int = 0  # workers that are not listed


@dataclass(slots=True)
class ObservedWorker:
    """One worker, present or gone, with its values over the training seconds."""

    name: str
    device: str  # with its threads or number: "cpu:2", "gpu:0"
    joined_at: float  # training seconds
    pid: int | None = None
    state: str = "starts"  # then "compiles", "trains", "parked", and at last "left" or "lost"
    reason: str = ""  # why it is parked or lost
    left_at: float | None = None  # training seconds; None if it is present
    batch_size: int | None = None
    batch_sizes: Trace = field(default_factory=Trace)
    rows: Counter = field(default_factory=Counter)
    updates: Counter = field(default_factory=Counter)
    parked: Trace = field(default_factory=Trace)  # 1 from when it is parked, 0 from its end
    utilization: list[tuple[float, float]] = field(default_factory=list)  # at evaluations
    staleness: float | None = None  # mean over its updates, of a GPU
    # of a GPU: updates by others between its pulls and merges, summed over its updates
    missed: Counter = field(default_factory=Counter)
    # of a server: its own workers. What they have done is part of what the server has done.
    workers: list["ObservedWorker"] = field(default_factory=list)
    others: int = 0  # of its own workers that are not known
    # of a worker of a server: what follows is not known of others
    measured_at: float | None = None  # training seconds of its figures; None: they are current
    busy: float | None = None  # fraction of its training seconds spent computing

    @classmethod
    def recorded(cls, record: WorkerRecord) -> "ObservedWorker":
        """The worker that a summary describes."""
        device = f"cpu:{record.threads}" if record.device == "cpu" else record.device
        worker = cls(record.name, device, 0.0)
        worker.batch_size = record.batch_size
        worker.batch_sizes.points = list(record.batch_trace)
        worker.rows.value = record.rows
        worker.updates.value = record.updates
        worker.updates.course.points = list(record.update_trace)
        worker.staleness, worker.left_at = record.staleness, record.left_at
        worker.state = "trains" if record.left_at is None else "left"
        if record.utilization is not None:
            worker.utilization.append((0.0, record.utilization))
        return worker

    def become_ready(self, batch_size: int, seconds: float) -> None:
        """It has its first batch size, at training second `seconds`."""
        self.state, self.joined_at = "trains", seconds
        self.resize(batch_size, seconds)
        self.rows.begin(seconds)

    def resize(self, batch_size: int, seconds: float) -> None:
        """It uses batches of this size from training second `seconds` on."""
        if batch_size != self.batch_size:
            self.batch_size = batch_size
            self.batch_sizes.add(seconds, batch_size)

    def park(self, reason: str, seconds: float) -> None:
        """It only evaluates from training second `seconds` on."""
        self.state, self.reason = "parked", reason
        self.parked.add(seconds, 1)

    def unpark(self, seconds: float) -> None:
        """It trains again from training second `seconds` on."""
        self.state, self.reason = "trains", ""
        self.parked.add(seconds, 0)

    def credit(self, lease: LeaseDone) -> None:
        """Add a lease that it has done."""
        self.resize(lease.batch_size, lease.seconds)
        self.rows.add(lease.rows[1] - lease.rows[0], lease.seconds)
        if lease.staleness is not None:
            total = (self.staleness or 0.0) * self.updates.value + lease.staleness * lease.updates
            self.staleness = total / max(1, self.updates.value + lease.updates)
            self.missed.add(round(lease.staleness * lease.updates), lease.seconds)
        self.updates.add(lease.updates, lease.seconds)

    def leave(self, state: str, reason: str, seconds: float) -> None:
        """It is gone at training second `seconds`."""
        if self.left_at is None:
            self.state, self.reason, self.left_at = state, reason, seconds
        for worker in self.workers:
            worker.leave("left", "", seconds)

    def take_figures(self, figures: FiguresOfServer, seconds: float) -> None:
        """It is a server, whose own workers have these figures at training second `seconds`."""
        known = {worker.name: worker for worker in self.workers}
        earliest = self._earliest_start
        self.others, self.workers = figures.others, []
        for each in figures.workers:
            worker = known.get(each.name) or _own_worker(each, earliest if each.rows else seconds)
            worker._update(each, seconds)
            self.workers.append(worker)

    @property
    def _earliest_start(self) -> float:
        """Training second from which a worker of this server that is not known yet has trained."""
        all_known = bool(self.workers) and not self.others  # when the last figures were measured
        measured_at = self.workers[0].measured_at if all_known else None
        return max(self.joined_at, measured_at or 0.0)

    def _update(self, figures: RecordedWorker, seconds: float) -> None:
        """It has these figures at training second `seconds`."""
        self.measured_at, self.busy = seconds, figures.busy
        # Without their courses, which nothing shows: a run may have 16 such workers per server.
        self.rows.set(figures.rows, seconds)
        self.updates.value = figures.updates
        self.batch_size = figures.batch_size or None
        if figures.state == "left":
            self.leave("left", "", seconds)
        else:
            self.state = figures.state

    def roll_back(self, seconds: float) -> None:
        """Forget what it did after training second `seconds`."""
        self.rows.roll_back(seconds)
        self.updates.roll_back(seconds)
        self.missed.roll_back(seconds)
        keep_until(self.batch_sizes, seconds)
        keep_until(self.parked, seconds)
        self.utilization = [point for point in self.utilization if point[0] <= seconds]
        self.workers, self.others = [], 0  # their figures contain what is forgotten
        if self.left_at is not None:
            self.left_at = min(self.left_at, seconds)


def _own_worker(figures: RecordedWorker, since: float) -> ObservedWorker:
    """A worker of a server that was not known before, and trains since training second `since`."""
    device = f"cpu:{figures.threads}" if figures.device == "cpu" else figures.device
    worker = ObservedWorker(figures.name, device, since)
    worker.rows.begin(since)
    return worker
