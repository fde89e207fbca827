"""The exchange thread, which merges a replica's change while the device continues training.

It synchronizes with the device by events, checks each change for NaN and Inf before it merges it
into the shared parameters, and reports a lease when all of its changes have been merged.
"""

import queue
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.errors import HogbatchError
from hogbatch.kernels.contract import ROWS, SKIPPED, TOTALS, UPDATES, add_totals
from hogbatch.kernels.gpu.device import Device
from hogbatch.store.merge import stale_weight
from hogbatch.store.model import SharedModel
from hogbatch.store.scan import first_not_finite
from hogbatch.wire.messages import Lease
from hogbatch.workers.compute.merge_interval import IntervalTimes, MergeCost
from hogbatch.workers.compute.report import report
from hogbatch.workers.noise import NoiseMeter
from hogbatch.workers.replica import Replica
from hogbatch.workers.session import Post
from hogbatch.workers.transfers import Transfers

MAX_REFUSED: Final = 3  # changes in a row that are not finite; then the worker fails


class Pause(Enum):
    """The points at which time passes in a thread of a GPU worker.

    The two threads of a GPU worker are generators, so that a rehearsal can run them at simulated
    times. They yield a queue before they take from it, an event before they wait for it, and one of
    these. In a real thread, the calls themselves take the time, so it ignores what they yield.
    """

    QUEUED = "after operations that the device does while the thread continues"
    COMPLETE = "after operations for which the thread waits"
    MERGE = "before a change is added to the shared parameters"


Steps = Generator[Any, None, None]


def run_steps(steps: Steps) -> None:
    """Run a thread of a GPU worker in the calling thread."""
    for _ in steps:
        pass


@dataclass(slots=True)
class LeaseProgress:
    """The progress of one lease."""

    lease: Lease
    began: float
    rows: int = 0  # rows of `lease` to train on, from its start; fewer if memory ran out
    too_large: int = 0  # size of a batch that did not fit into memory
    refused: int = 0  # changes that were not finite
    total_staleness: int = 0  # summed over merges
    merge_seconds: float = 0.0  # during which merges kept the device from training
    transfers: Transfers = field(default_factory=Transfers)  # for merges, by the exchange thread
    inputs: Transfers = field(default_factory=Transfers)  # of input, by the training thread
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(TOTALS))


class Interval(NamedTuple):
    """The batches between two merges: rows [start, stop) of the epoch order."""

    progress: LeaseProgress
    start: int
    stop: int
    last: bool  # of its lease

    @property
    def rows(self) -> int:
        return self.stop - self.start


class IntervalEvents(NamedTuple):
    """Events of the training thread in one interval, in this order."""

    begun: Any  # the replica is ready for the first batch
    trained: Any  # the last batch is done
    ended: Any  # the training thread has finished the interval
    ready: Any  # the previous merge is done, so that this one may begin
    taken: Any  # the change is complete; then the next interval begins

    def times(
        self, device: Device, interval: Interval, background: float, *, alone: bool
    ) -> IntervalTimes:
        """The times between the events, all of which must be done."""
        cost = MergeCost(device.elapsed(self.ready, self.taken), background)
        training = device.elapsed(self.begun, self.trained)
        size = interval.progress.lease.batch_size
        return IntervalTimes(size, interval.rows, training, cost, alone)


class _PendingMerge(NamedTuple):
    """An interval that has not been merged yet."""

    interval: Interval
    events: IntervalEvents | None  # None: there is no change, and the rows count as skipped
    based_on: int = 0  # updates by other workers when the replica was pulled


class _Outcome(NamedTuple):
    """The result of exchanging an interval."""

    finite: bool
    times: IntervalTimes | None = None  # None: there was no change


class ReplicaExchange:
    """Merges one interval at a time; the training thread submits intervals and waits.

    `damping` is a rule of :func:`stale_weight`. `observe` is called with the times of each
    interval, by the training thread. Reports go to `post`.
    """

    def __init__(
        self,
        replica: Replica,
        model: SharedModel,
        fence: NDArray[np.int64],
        damping: str,
        observe: Callable[[IntervalTimes], None],
        post: Post,
    ) -> None:
        self._replica, self._model, self._fence = replica, model, fence
        self._damping, self._observe = damping, observe
        self._post = post
        self._meter: NoiseMeter | None = None
        self._jobs: queue.SimpleQueue[_PendingMerge] = queue.SimpleQueue()
        self.outcomes: queue.SimpleQueue[_Outcome | Exception] = queue.SimpleQueue()
        self.pending = False  # whether `wait` has to wait for `outcomes`
        self._merges = 0  # by this worker
        self._refused = 0  # changes in a row
        self._reported_at = 0.0
        # Updates by other workers that the fetched parameters and the replica contain.
        self._fetched = self._based_on = 0

    def start(self, meter: NoiseMeter | None = None) -> None:
        """Exchange in a new thread, which measures the gradient noise with `meter`."""
        self._meter = meter
        threading.Thread(target=run_steps, args=(self.steps(),), daemon=True).start()

    # Called by the training thread ----------------------------------------------------------

    def submit(self, interval: Interval, events: IntervalEvents) -> None:
        """Queue the change that the replica has taken."""
        pending = _PendingMerge(interval, events, self._based_on)
        self._based_on = self._fetched  # after the put, the exchange thread may change it
        self._jobs.put(pending)
        self.pending = True

    def skip(self, interval: Interval) -> None:
        """Count the rows of an interval as skipped, because its start values were not finite."""
        self._jobs.put(_PendingMerge(interval, None))
        self.pending = True

    def wait(self) -> bool:
        """Wait until nothing is pending; return False if the last change was refused.

        An exception of the exchange thread is raised here.
        """
        if not self.pending:
            return True
        outcome = self.outcomes.get()
        self.pending = False
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.times is not None:
            self._observe(outcome.times)
        return outcome.finite

    def before_pull(self) -> None:
        """Record the current number of updates; to be called before the replica is pulled."""
        self._fetched = self._based_on = self._foreign_updates()

    # Run by the exchange thread -------------------------------------------------------------

    def steps(self) -> Steps:
        """Exchange what is submitted, until an exception, which `wait` raises."""
        try:
            self._replica.device.enter()
            while True:
                yield self._jobs
                self.outcomes.put((yield from self._exchange(self._jobs.get())))
        except Exception as error:
            self.outcomes.put(error)

    def _exchange(self, pending: _PendingMerge) -> Generator[Any, None, _Outcome]:
        interval = pending.interval
        if pending.events is not None:
            outcome = yield from self._exchange_change(pending, pending.events)
        else:
            outcome = _Outcome(finite=True)
            if self._may_write(interval):
                self._skip_rows(interval)
        if interval.last:
            self._report(interval.progress)
        return outcome

    def _exchange_change(
        self, pending: _PendingMerge, events: IntervalEvents
    ) -> Generator[Any, None, _Outcome]:
        interval, progress = pending.interval, pending.interval.progress
        yield events.taken
        self._replica.device.synchronize_event(events.taken)
        finite = bool(self._replica.finite[0])
        if not finite:
            self._refuse()
        began = self._replica.device.host_time()  # before this, it waited for training
        others = self._foreign_updates()
        # Checked last: the device may have taken long, so the lease may have been revoked.
        if self._may_write(interval):
            if finite:
                staleness = max(0, others - pending.based_on)
                yield Pause.MERGE
                others = self._foreign_updates()  # read first: what is pulled contains these
                self._merge(pending, staleness)
            else:
                progress.refused += 1
                self._skip_rows(interval)
        self._replica.fetch()
        self._fetched = others
        device, alone = self._replica.device, others == pending.based_on
        # From the last batch to the first one of the next interval. The training thread itself
        # waits longer, because it queues batches in advance.
        progress.merge_seconds += device.elapsed(events.ended, events.taken)
        counted = self._replica.transfers.take()
        progress.transfers.add(counted.bytes, counted.seconds)
        background = device.host_time() - began
        return _Outcome(finite, events.times(device, interval, background, alone=alone))

    def _may_write(self, interval: Interval) -> bool:
        """Whether the lease of `interval` is still valid."""
        return bool(self._fence[0] == interval.progress.lease.fence)

    def _skip_rows(self, interval: Interval) -> None:
        interval.progress.totals[[ROWS, SKIPPED]] += interval.rows

    def _refuse(self) -> None:
        """Count a change that is not finite; HogbatchError after MAX_REFUSED in a row.

        If the shared parameters are not finite either, the coordinator rolls the model back.
        """
        if first_not_finite(self._model.params) is None:
            self._refused += 1
        if self._refused >= MAX_REFUSED:
            raise HogbatchError(f"{self._refused} merges in a row were not finite")

    def _merge(self, pending: _PendingMerge, staleness: int) -> None:
        """Merge the change into the shared parameters."""
        progress, totals = pending.interval.progress, self._replica.taken_totals
        damping = 1.0 if self._replica.damps_weights else stale_weight(self._damping, staleness)
        self._replica.merge(progress.lease.weight * damping)
        self._model.merges[0] += 1  # racy like the weights; only staleness depends on it
        self._merges += 1
        self._refused = 0
        totals[[ROWS, UPDATES]] = pending.interval.rows, 1
        add_totals(totals, progress.totals)
        progress.total_staleness += staleness

    def _foreign_updates(self) -> int:
        """Updates of the shared parameters by all other workers."""
        return self._model.updates - self._merges

    def _report(self, progress: LeaseProgress) -> None:
        now = self._replica.device.host_time()
        seconds = now - max(progress.began, self._reported_at)
        self._reported_at = now
        merges, lease = max(1, int(progress.totals[UPDATES])), progress.lease
        # Of the rows that follow, the shared parameters contain no update by this worker.
        noise = None if self._meter is None else self._meter.measure(lease, lease.stop)
        message = report(
            lease,
            progress.totals,
            seconds,
            progress.rows,
            noise=None if noise is None else tuple(noise.tolist()),
            staleness=progress.total_staleness / merges,
            refused=progress.refused,
            too_large=progress.too_large,
            merge_seconds=progress.merge_seconds,
            transferred=progress.transfers.bytes + progress.inputs.bytes,
            transfer_seconds=progress.transfers.seconds + progress.inputs.seconds,
        )
        self._post(message)
