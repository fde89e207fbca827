"""The leases that a server was given, and how far its workers have done them."""

from dataclasses import dataclass, field

from hogbatch.config.sets import SET_NAMES, SetName
from hogbatch.coordinator.progress import LossSums
from hogbatch.wire.messages import Done, Lease


@dataclass(slots=True)
class SuppliedLease:
    """One lease, and the sums over those of its rows that are done."""

    lease: Lease
    since: float  # by the caller's clock: given, or the lease before it done
    rows: int = 0
    updates: int = 0
    active: float = 0.0  # summed over updates
    sums: LossSums = field(default_factory=LossSums)

    @property
    def remaining(self) -> int:
        return self.lease.stop - self.lease.start - self.rows

    def add(self, done: Done) -> None:
        self.rows += done.rows
        self.updates += done.updates
        self.active += done.active * done.updates
        self.sums.add(done)

    def done(self, now: float) -> Done:
        return Done(
            lease=self.lease.number,
            rows=self.rows,
            updates=self.updates,
            seconds=max(0.0, now - self.since),
            loss=self.sums.loss,
            skipped=self.sums.skipped,
            metric_sums=tuple(self.sums.metric_sums),
            active=self.active / self.updates if self.updates else 0.0,
            skipped_row=self.sums.skipped_row,
            extra_weight=self.sums.extra_weight,
        )


@dataclass(slots=True)
class Supply:
    """The leases that are not done; their ranges of rows do not overlap within a task."""

    trained: int = 0  # training leases that are done
    _leases: dict[SetName, list[SuppliedLease]] = field(
        default_factory=lambda: {name: [] for name in SET_NAMES}
    )

    def add(self, lease: Lease, now: float) -> None:
        self._leases[lease.task].append(SuppliedLease(lease, now))

    def exclude(self, start: int, stop: int, now: float) -> list[Done]:
        """Count training rows [start, stop), which kill workers, as skipped."""
        rows = stop - start
        none = Done(0, rows, updates=0, seconds=0.0, loss=0.0, skipped=rows, metric_sums=())
        return self.credit("train", start, none, now)

    def credit(self, task: SetName, start: int, done: Done, now: float) -> list[Done]:
        """Add what a worker has done from row `start` on; return the message of a complete lease.

        The rows are those of one lease.
        """
        found = (each for each in self._leases[task] if each.lease.start <= start < each.lease.stop)
        supplied = next(found)
        supplied.add(done)
        if supplied.remaining > 0:
            return []
        leases = self._leases[task]
        leases.remove(supplied)
        if task == "train":
            self.trained += 1
        for other in leases:  # the workers begin with it only now
            other.since = max(other.since, now)
        return [supplied.done(now)]
