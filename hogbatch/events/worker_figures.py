"""The workers of a run, as its events describe them, and the courses of their values."""

from dataclasses import dataclass, field
from typing import Final

from hogbatch.events.event import LeaseDone, LeasesDone, WorkersOfServer

MAX_POINTS: Final = 1000  # of a trace
DIGITS: Final = 4  # of the training seconds of a point, after the decimal point
WINDOW_S: Final = 10.0  # training seconds over which a recent speed is measured
MAX_RECENT: Final = 100  # points in this time


@dataclass(slots=True)
class Trace:
    """(training seconds, value) at each change, thinned to even intervals when there are many.

    A policy may change a batch size a hundred times a second, which would fill memory within days.
    """

    points: list[tuple[float, int]] = field(default_factory=list)
    min_distance: float = 0.0  # seconds between two points

    def add(self, seconds: float, value: int) -> None:
        """Add a change to `value` at training second `seconds`."""
        point = (round(seconds, DIGITS), value)
        if self.points and seconds - self.points[-1][0] < self.min_distance:
            self.points[-1] = (self.points[-1][0], value)
            return
        self.points.append(point)
        if len(self.points) > MAX_POINTS:  # drop about every second one
            distance = 2 * (point[0] - self.points[0][0]) / MAX_POINTS
            self.min_distance = max(2 * self.min_distance, distance, 10**-DIGITS)
            points, self.points = self.points, []
            for each in points:
                self.add(*each)

    def keep_until(self, seconds: float) -> None:
        """Remove what it has after training second `seconds`."""
        last = round(seconds, DIGITS)  # as a change at this very moment was rounded
        self.points = [point for point in self.points if point[0] <= last]


@dataclass(slots=True)
class Counter:
    """A number that only grows: its value, its course, and its growth per training second."""

    value: int = 0
    course: Trace = field(default_factory=Trace)
    recent: list[tuple[float, int]] = field(default_factory=list)  # of about WINDOW_S

    def begin(self, seconds: float) -> None:
        """Measure speeds from training second `seconds` on."""
        self.recent = [(seconds, self.value)]

    def add(self, amount: int, seconds: float) -> None:
        """Add `amount` at training second `seconds`."""
        self.set(self.value + amount, seconds)
        self.course.add(seconds, self.value)

    def set(self, value: int, seconds: float) -> None:
        """Set the value at training second `seconds`; the course is not kept."""
        self.value = value
        if len(self.recent) > 1 and seconds - self.recent[-2][0] < WINDOW_S / MAX_RECENT:
            self.recent.pop()
        self.recent.append((seconds, value))
        while len(self.recent) > 2 and self.recent[1][0] <= seconds - WINDOW_S:
            del self.recent[0]

    def speed(self, now: float) -> float | None:
        """The recent speed at training second `now`; None before anything was measured."""
        if not self.recent:
            return None
        before = [point for point in self.recent if point[0] <= now - WINDOW_S]
        start, value = before[-1] if before else self.recent[0]
        return (self.value - value) / (now - start) if now > start else None

    def roll_back(self, seconds: float) -> None:
        """Restore the value of training second `seconds`, as far as the course has it."""
        self.course.keep_until(seconds)
        self.value = self.course.points[-1][1] if self.course.points else 0


@dataclass(slots=True)
class ObservedWorker:
    """One worker, present or gone, with its values over the training seconds."""

    name: str
    device: str  # with its threads or number: "cpu:2", "gpu:0"
    joined_at: float  # training seconds; of a worker of a server, those of the server
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
    measured_at: float | None = None  # training seconds of its figures
    busy: float | None = None  # fraction of its training seconds spent computing

    @property
    def last_utilization(self) -> float | None:
        """The utilization before the last evaluation; None if it was not measured."""
        return self.utilization[-1][1] if self.utilization else None

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

    def park(self, parked: bool, reason: str, seconds: float) -> None:
        """From training second `seconds` on, it only evaluates if it is `parked`, else trains."""
        self.state, self.reason = "parked" if parked else "trains", reason
        self.parked.add(seconds, int(parked))

    def credit(self, done: LeaseDone | LeasesDone) -> None:
        self.resize(done.batch_size, done.seconds)
        self.rows.add(done.row_count, done.seconds)
        self.updates.add(done.updates, done.seconds)
        if done.staleness is not None:
            self.missed.add(round(done.staleness * done.updates), done.seconds)
            self.staleness = self.missed.value / max(1, self.updates.value)

    def leave(self, state: str, reason: str, seconds: float) -> None:
        """It is gone at training second `seconds`."""
        if self.left_at is None:
            self.state, self.reason, self.left_at = state, reason, seconds
        for worker in self.workers:
            worker.leave("left", "", seconds)

    def take_figures(self, figures: WorkersOfServer, seconds: float) -> None:
        """It is a server, whose own workers have these figures at training second `seconds`."""
        known = {worker.name: worker for worker in self.workers}
        self.others, self.workers = figures.others, []
        for each in figures.workers:
            worker = known.get(each.name)
            if worker is None:
                device = f"cpu:{each.threads}" if each.device == "cpu" else each.device
                worker = ObservedWorker(each.name, device, self.joined_at)
                worker.rows.value = each.rows if known else 0  # it may have been among the others
                worker.rows.begin(seconds if known else self.joined_at)
            worker.measured_at, worker.busy = seconds, each.busy
            # Without their courses, which nothing shows: a run may have 16 such workers per server.
            worker.rows.set(each.rows, seconds)
            worker.updates.value = each.updates
            worker.batch_size = each.batch_size or None
            if each.state == "left":
                worker.leave("left", "", seconds)
            else:
                worker.state = each.state
            self.workers.append(worker)

    def roll_back(self, seconds: float) -> None:
        """Forget what it did after training second `seconds`."""
        for counter in (self.rows, self.updates, self.missed):
            counter.roll_back(seconds)
        self.batch_sizes.keep_until(seconds)
        self.parked.keep_until(seconds)
        self.utilization = [point for point in self.utilization if point[0] <= seconds]
        self.workers, self.others = [], 0  # their figures contain what is forgotten
        if self.left_at is not None:
            self.left_at = min(self.left_at, seconds)
