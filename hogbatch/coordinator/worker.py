"""The coordinator's view of one worker: its limits, its leases and what it has done."""

import math
from dataclasses import dataclass, field
from typing import Any

from hogbatch.coordinator.plan import Limits
from hogbatch.events.event import WorkerReady
from hogbatch.events.records import WorkerRecord
from hogbatch.events.worker_figures import Trace
from hogbatch.policy.base import WorkerView
from hogbatch.policy.limits import (
    largest_cpu_batch,
    peak_speed,
    smallest_cpu_batch,
    useful_limits,
    utilization,
)
from hogbatch.policy.noise_scale import NoiseEstimate
from hogbatch.policy.progress import batch_seconds
from hogbatch.policy.throughput import FORWARD_FRACTION, SecondsPerRow
from hogbatch.wire.messages import Done, Heartbeat, Lease, Ready

Profile = tuple[tuple[int, float], ...]  # (rows of a batch, seconds), as measured

EVALUATION_BATCH = 256  # rows of a CPU worker's evaluation batch
SERVER_UNIT = 256  # leases of a server are multiples of this number of rows
GOLDEN_RATIO = 0.618  # the fractional parts of its multiples are spread evenly over 0..1
SUSPECT_DEATHS = 2  # deaths of workers on the same rows, after which the rows are isolated
TRIAL_INTERVAL = 20  # batches; see Worker.trial_is_due
MEMORY_FRACTION = 0.9  # of the size of a batch that did not fit: the largest size tried afterwards


@dataclass(slots=True)
class HeldLease:
    """A lease that a worker holds."""

    lease: Lease
    deaths: int = 0  # of workers that held these rows
    deadline: float = math.inf  # by the caller's clock; then its worker counts as lost

    def error_in(self, done: Done) -> str | None:
        """Why the worker that sent `done` for this lease must be removed; None if it need not."""
        rows = self.lease.stop - self.lease.start
        if done.rows > rows or (done.rows < rows and not done.too_large):
            return f"reported {done.rows} rows for lease {done.lease} of {rows} rows"
        if done.refused > done.rows:
            return f"refused {done.refused} merges of {done.rows} rows"
        if failed_batch(self.lease, done) == 1:
            return "its device has no memory for a batch of one row"
        return None


def failed_batch(lease: Lease, done: Done) -> int:
    """Rows of the batch of `lease` that did not fit into memory; 0 if all batches fitted."""
    return min(done.too_large, lease.batch_size)


@dataclass(slots=True)
class Worker:
    """The state of one attached worker."""

    key: str  # its address on the control plane
    number: int  # of its fence
    name: str
    device: str
    threads: int
    pid: int
    fence: int  # value under which it may write
    last_seen: float
    noise: NoiseEstimate = field(default_factory=NoiseEstimate)  # of the run
    parts: tuple[int, ...] = ()  # of divided data that it holds
    admitted_at: float = 0.0  # by the caller's clock
    beat_seconds: float = 1.0  # between two heartbeats
    ready: bool = False
    teams: int = 1  # batches that it computes at the same time
    members: int = 1  # threads that compute each batch
    compiling: bool = False
    limits: tuple[int, int] = (1, 1)
    max_fitting: int | None = None  # rows of the largest batch that may fit; None: not known
    leases: dict[int, HeldLease] = field(default_factory=dict)
    unmerged: list[int] = field(default_factory=list)  # leases of a server before the next merge
    merged_leases: int = 0  # training leases of a server that are not in `unmerged` any more
    assigned_at: float = 0.0  # its last training lease, by the caller's clock
    batch_size: int = 0
    profile: Profile = ()
    merge: tuple[float, float] = (0.0, 0.0)  # seconds of a merge; see Ready
    merge_every: int = 0  # batches; 0: as its worker finds suitable
    weight: float = 1.0  # of its changes
    lost_because: str = ""
    trains: bool = True  # False: it is parked
    parked_since: float = 0.0  # training seconds
    parked_seconds: float = 0.0  # until it trained again
    rows: int = 0
    updates: int = 0
    staleness_sum: float = 0.0  # over its merges
    merge_seconds: float = 0.0  # see Done
    transferred: int = 0
    transfer_seconds: float = 0.0
    active_sum: float = 0.0  # active outputs of a hashed layer, over its updates
    update_credit: float = 0.0  # updates it is credited with for having joined late
    busy_seconds: float = 0.0
    joined_at: float = 0.0  # training seconds at its Ready
    left_at: float | None = None  # training seconds at its end
    evaluated_rows: int = 0  # trained on until the last evaluation
    evaluated_busy: float = 0.0  # its busy seconds until then
    fastest_interval: float = 0.0  # rows per busy second between two evaluations, at most
    speed: SecondsPerRow = field(default_factory=SecondsPerRow)  # in training
    evaluation_speed: SecondsPerRow = field(default_factory=SecondsPerRow)
    batch_trace: Trace = field(default_factory=Trace)
    update_trace: Trace = field(default_factory=Trace)

    def view(self) -> WorkerView:
        """The view of this worker that a batch policy receives."""
        return WorkerView(
            self.device,
            self.teams,
            *self.limits,
            self.batch_size,
            self.update_credit + self.updates,
            self.speed.value if self.rows else math.nan,
            self.profile,
            self.merge,
            self.merge_every,
            self.trains,
            self.members,
            self.weight,
            self.noise.scale,
        )

    def expect_measured_speed(self) -> None:
        """Expect the speed that was measured before training, until a lease is done.

        The first lease of a GPU worker may then be long if it trains alone, which saves merges.
        Leases of a CPU worker cost nothing, and the first one measures its speed with all threads.
        """
        if self.device != "cpu" and self.profile:
            self.speed.add(batch_seconds(self.profile, self.batch_size), self.batch_size)

    @property
    def is_new_gpu(self) -> bool:
        """Whether this is a GPU worker that has not trained yet."""
        return self.device == "gpu" and not self.rows

    def park(self, seconds: float) -> None:
        self.trains, self.parked_since = False, seconds

    def resume_training(self, seconds: float) -> None:
        self.trains = True
        self.parked_seconds += seconds - self.parked_since

    def parked_until(self, seconds: float) -> float:
        """Training seconds for which it was parked until `seconds`."""
        return self.parked_seconds + (0.0 if self.trains else seconds - self.parked_since)

    def starts_compiling(self, beat: Heartbeat) -> bool:
        """Whether `beat` is the first one that reports that the kernels are being compiled."""
        starts = beat.compiling and not self.compiling and not self.ready
        self.compiling |= starts
        return starts

    def prepare(self, ready: Ready, run_limits: Limits, train_rows: int) -> str | None:
        """Set its teams and its batch limits; return why that fails, if it does."""
        self.teams, self.members = ready.teams, ready.members
        self.profile, self.merge = ready.profile, ready.merge
        limits = run_limits.cpu if self.device == "cpu" else run_limits.gpu
        if self.device == "server":
            limits = (min(SERVER_UNIT, train_rows),) * 2
        if limits is None and self.device == "cpu":
            largest = largest_cpu_batch(train_rows, ready.members)
            smallest = smallest_cpu_batch(self.profile, run_limits.cpu_min_utilization)
            limits = min(smallest, largest), largest
        elif limits is None:
            if not self.profile:
                return "sent no measured batch sizes"
            limits = useful_limits(
                self.profile, run_limits.min_utilization, run_limits.largest_useful
            )
        self.limits = limits
        return None

    @property
    def turn(self) -> float:
        """0..1, spread evenly over the workers: when it asks for leases, compared with others."""
        return self.number * GOLDEN_RATIO % 1.0

    @property
    def _peak(self) -> float | None:
        """Its peak rows per second, before training or in it; None if it did not measure before."""
        measured = peak_speed(self.profile, self.teams)
        return measured and max(measured, self.fastest_interval, self._interval_speed)

    @property
    def _interval_speed(self) -> float:
        """Its rows per busy second since the last evaluation; 0 before it has done a lease."""
        rows, busy = self.rows - self.evaluated_rows, self.busy_seconds - self.evaluated_busy
        return rows / busy if busy > 0 else 0.0

    @property
    def evaluation_batch(self) -> int:
        usual = EVALUATION_BATCH if self.device == "cpu" else self.limits[1]
        return usual if self.max_fitting is None else max(1, min(usual, self.max_fitting // 2))

    @property
    def staleness(self) -> float | None:
        """Mean number of other workers' updates between pull and merge; None without merges."""
        return self.staleness_sum / self.updates if self.device == "gpu" and self.updates else None

    @property
    def holds_suspect_rows(self) -> bool:
        """Whether it holds rows on which several workers have died; then it gets no other rows."""
        return any(held.deaths >= SUSPECT_DEATHS for held in self.leases.values())

    @property
    def seconds_ahead(self) -> float:
        """Expected duration of the leases that it holds; nan if that of one is not known."""
        return sum(self.expected_seconds(held.lease) for held in self.leases.values())

    def expected_seconds(self, lease: Lease) -> float:
        """Expected duration of `lease`; nan while its speed at such work is unknown."""
        rows = lease.stop - lease.start
        if lease.task == "train":
            return rows * self.speed.value
        return rows * self.evaluation_row_seconds

    @property
    def evaluation_row_seconds(self) -> float:
        """Seconds per row of evaluation; until an evaluation, as expected from its training."""
        if (measured := self.evaluation_speed.value) > 0:
            return measured
        training = self.speed.value if self._peak is None else 1 / self._peak
        return FORWARD_FRACTION * training

    def trial_is_due(self, now: float) -> bool:
        """Whether its last training lease is so long ago that its speed should be measured again.

        A batch that takes longer than an epoch of the other workers would delay each of them, but
        the measurement may be wrong, for example if its first leases were slow. The delay is at
        most 1/TRIAL_INTERVAL of the time.
        """
        interval = TRIAL_INTERVAL * self.batch_size * self.speed.value
        return not self.leases and now - self.assigned_at > interval

    def ready_event(self) -> WorkerReady:
        teams = (self.teams, self.members) if self.device == "cpu" else None
        return WorkerReady(self.name, self.limits, self.batch_size, teams)

    def lease_fields(
        self, lease: Lease, done: Done, rows: tuple[int, int], epoch: int, seconds: float
    ) -> dict[str, Any]:
        """The fields of OfLease for a lease that was done at training second `seconds`."""
        fields: dict[str, Any] = {
            "seconds": round(seconds, 4),
            "epoch": epoch,
            "rows": list(rows),
            "worker": self.name,
            "batch_size": lease.batch_size,
            "updates": done.updates,
        }
        if self.device == "gpu":
            fields |= {
                "staleness": round(done.staleness, 4),
                "merge_seconds": round(done.merge_seconds, 6),
                "transferred": done.transferred,
                "transfer_seconds": round(done.transfer_seconds, 6),
            }
        return fields

    def credit(self, done: Done) -> None:
        """Add one finished training lease to its totals."""
        self.rows += done.rows
        self.updates += done.updates
        self.staleness_sum += done.staleness * done.updates
        self.merge_seconds += done.merge_seconds
        self.transferred += done.transferred
        self.transfer_seconds += done.transfer_seconds
        self.active_sum += done.active * done.updates
        self.busy_seconds += done.seconds
        if done.rows:
            self.speed.add(done.seconds, done.rows)

    def resize(self, size: int, seconds: float) -> None:
        """Use batches of `size` rows, clamped to the limits, from training second `seconds` on."""
        smallest, largest = self.limits
        size = int(min(max(smallest, size), largest))  # in this order, nan gives the smallest
        if size != self.batch_size:
            self.batch_size = size
            self.batch_trace.add(seconds, size)

    def shrink(self, too_large: int, seconds: float) -> bool:
        """Keep batches below `too_large` rows, which did not fit into the device's memory.

        Returns False if the limits are that low already.
        """
        fitting = max(1, int(MEMORY_FRACTION * too_large))
        if self.max_fitting is not None and fitting >= self.max_fitting:
            return False
        self.max_fitting = fitting
        self.limits = (min(self.limits[0], fitting), min(self.limits[1], fitting))
        self.resize(min(self.batch_size, too_large // 2), seconds)
        return True

    def interval_utilization(self, since: float, seconds: float) -> float | None:
        """Its utilization between the last evaluation, at training second `since`, and `seconds`.

        Only while it is ready; None if it was not, or if its peak is not known.
        """
        end = seconds if self.left_at is None else self.left_at
        rows = self.rows - self.evaluated_rows
        return utilization(rows, end - max(since, self.joined_at), self._peak)

    def end_interval(self, seconds: float) -> None:
        """The model is evaluated at training second `seconds`."""
        self.fastest_interval = max(self.fastest_interval, self._interval_speed)
        self.evaluated_rows, self.evaluated_busy = self.rows, self.busy_seconds
        self.update_trace.add(seconds, self.updates)

    def busy(self, seconds: float) -> float:
        """Fraction of its training time until `seconds` that it has computed, while not parked."""
        end = seconds if self.left_at is None else self.left_at
        trained = end - self.joined_at - self.parked_until(end)
        return min(1.0, self.busy_seconds / trained) if trained > 0 else 0.0

    def record(self, seconds: float, all_updates: int) -> WorkerRecord:
        gpu = self.device == "gpu"
        end = seconds if self.left_at is None else self.left_at
        return WorkerRecord(
            name=self.name,
            device=self.device,
            threads=self.threads,
            rows=self.rows,
            updates=self.updates,
            update_share=self.updates / all_updates if all_updates else 0.0,
            busy=self.busy(seconds),
            utilization=utilization(self.rows, end - self.joined_at, self._peak),
            parked_seconds=self.parked_until(end),
            left_at=self.left_at,
            batch_size=self.batch_size,
            batch_trace=list(self.batch_trace.points),
            update_trace=list(self.update_trace.points),
            staleness=self.staleness,
            merge_seconds=self.merge_seconds if gpu else None,
            transferred=self.transferred if gpu else None,
            transfer_seconds=self.transfer_seconds if gpu else None,
            active=self.active_sum / self.updates if self.active_sum else None,
        )
