"""The merges of a rehearsed GPU worker at simulated times; see `hogbatch.workers.exchange`.

The change of an interval is merged, and the shared parameters are fetched, while the next interval
is trained.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import ROWS, SKIPPED, TOTALS, UPDATES, add_totals
from hogbatch.simulate.engine import Host
from hogbatch.simulate.hardware.gpu_cost import MergeTimes
from hogbatch.simulate.rehearsal.replica import RehearsedReplica
from hogbatch.store.staleness import Damping
from hogbatch.wire.messages import Lease
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.merge_interval import IntervalTimes, MergeCost
from hogbatch.workers.compute.refused_changes import RefusedChanges
from hogbatch.workers.compute.report import MergeReport, report


@dataclass(slots=True)
class LeaseOnReplica:
    """The progress of one lease."""

    lease: Lease
    began: float  # simulated seconds
    refused: int = 0  # changes that were not finite
    total_staleness: int = 0  # summed over merges
    merge_seconds: float = 0.0  # for which merges kept the device from training
    transferred: int = 0  # bytes, for merges
    transfer_seconds: float = 0.0
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(TOTALS))


class ReplicaInterval(NamedTuple):
    """The batches between two merges: rows [start, stop) of the epoch order."""

    progress: LeaseOnReplica
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    @property
    def last(self) -> bool:
        """Whether the lease ends with it."""
        return self.stop == self.progress.lease.stop


class IntervalInstants(NamedTuple):
    """Simulated times in one interval, in this order, as in `workers.exchange.IntervalEvents`."""

    begun: float  # the replica is ready for the first batch
    trained: float  # the last batch is done
    ended: float  # the training thread has finished the interval
    ready: float  # the previous merge is done, so that this one may begin
    taken: float  # the change is complete; then the next interval begins


class TakenChange(NamedTuple):
    """A change of the replica that is merged next."""

    interval: ReplicaInterval
    instants: IntervalInstants
    times: MergeTimes
    transferred: int  # bytes, for its merge and the fetch that follows
    based_on: int  # updates by other workers when the replica was pulled


class ExchangeOutcome(NamedTuple):
    """The result of exchanging an interval."""

    finite: bool
    times: IntervalTimes | None = None  # None: there was no change


class RehearsedExchange:
    """Merges one interval at a time. `wake` is called when an exchange is done."""

    def __init__(
        self,
        assignment: Assignment,
        replica: RehearsedReplica,
        host: Host,
        wake: Callable[[], None],
    ) -> None:
        self._model, self._fence = assignment.model, assignment.fence
        self._damping = Damping(assignment.welcome.staleness_damping)
        self._replica, self._host, self._wake = replica, host, wake
        self.pending = False
        self.outcome: ExchangeOutcome | None = None
        self._merges = 0  # by this worker
        self._refusals = RefusedChanges(self._model.params)
        self._reported_at = 0.0
        # Updates by other workers that the fetched parameters and the replica contain.
        self._fetched = self._based_on = 0

    # Called by the training thread ----------------------------------------------------------------

    def submit(self) -> int:
        """Announce a change; return the updates by other workers that it is based on."""
        self.pending = True
        based_on, self._based_on = self._based_on, self._fetched
        return based_on

    def skip(self, interval: ReplicaInterval) -> None:
        """Count the rows of an interval as skipped, because its start values were not finite."""
        self.pending = True
        if self._may_write(interval):
            self._skip_rows(interval)
        self._finish(interval, ExchangeOutcome(finite=True))

    def before_pull(self) -> None:
        """Record the current number of updates; to be called before the replica is pulled."""
        self._fetched = self._based_on = self._foreign_updates()

    # The exchange thread --------------------------------------------------------------------------

    def begin(self, change: TakenChange, finite: bool) -> None:
        """Merge a change that is complete now, and fetch; HogbatchError after too many refusals."""
        interval = change.interval
        if not finite:
            self._refusals.add()
        if not self._may_write(interval):
            self._fetch(change, finite)
        elif finite:
            self._merge(change)
        else:
            interval.progress.refused += 1
            self._skip_rows(interval)
            self._fetch(change, finite)

    def _merge(self, change: TakenChange) -> None:
        """Merge the change, with the weight of its staleness when the merge begins."""
        totals = self._replica.taken_totals.copy()
        staleness = max(0, self._foreign_updates() - change.based_on)
        damping = 1.0 if self._replica.damps_weights else self._damping.weight(staleness)
        weight = change.interval.progress.lease.weight * damping

        def add() -> None:
            self._replica.merge(weight)
            self._model.merges[0] += 1
            self._merges += 1
            self._refusals.reset()
            totals[[ROWS, UPDATES]] = change.interval.rows, 1
            add_totals(totals, change.interval.progress.totals)
            change.interval.progress.total_staleness += staleness
            self._fetch(change, finite=True)

        self._host.later(change.times.merge, add)

    def _fetch(self, change: TakenChange, finite: bool) -> None:
        """Fetch the parameters as they are now, and finish after the time of the copy."""
        others, instants, progress = (
            self._foreign_updates(),
            change.instants,
            change.interval.progress,
        )
        self._replica.fetch()

        def finish() -> None:
            self._fetched = others
            progress.merge_seconds += instants.taken - instants.ended
            progress.transferred += change.transferred
            progress.transfer_seconds += change.times.merge + change.times.fetch
            background = self._host.now - instants.taken
            cost = MergeCost(instants.taken - instants.ready, background)
            training = instants.trained - instants.begun
            times = IntervalTimes(progress.lease.batch_size, change.interval.rows, training, cost)
            self._finish(change.interval, ExchangeOutcome(finite, times))

        self._host.later(change.times.fetch, finish)

    def _finish(self, interval: ReplicaInterval, outcome: ExchangeOutcome) -> None:
        self.outcome = outcome
        if interval.last:
            self._report(interval.progress)
        self._wake()

    def _may_write(self, interval: ReplicaInterval) -> bool:
        """Whether the lease of `interval` is still valid."""
        return bool(self._fence[0] == interval.progress.lease.fence)

    def _skip_rows(self, interval: ReplicaInterval) -> None:
        interval.progress.totals[[ROWS, SKIPPED]] += interval.rows

    def _foreign_updates(self) -> int:
        """Updates of the shared parameters by all other workers."""
        return self._model.updates - self._merges

    def _report(self, progress: LeaseOnReplica) -> None:
        seconds = self._host.now - max(progress.began, self._reported_at)
        self._reported_at = self._host.now
        merges = max(1, int(progress.totals[UPDATES]))
        merge = MergeReport(
            staleness=progress.total_staleness / merges,
            refused=progress.refused,
            merge_seconds=progress.merge_seconds,
            transferred=progress.transferred,
            transfer_seconds=progress.transfer_seconds,
        )
        self._host.post(report(progress.lease, progress.totals, seconds, merge))
