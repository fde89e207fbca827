"""A rehearsed GPU worker: the pipeline of `hogbatch.workers.gpu` at the times of a described GPU.

The training thread is a generator: what it yields is what it waits for. It queues operations on the
device, which does them one after the other, and runs ahead of it by up to one interval. So it looks
for the next lease when it has queued the last interval of a lease, not when that is done. On
gpu:host, each operation is done before the thread continues, as in `HostDevice`.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from enum import Enum
from typing import Literal, Protocol

import numpy as np

from hogbatch.errors import HogbatchError
from hogbatch.kernels.contract import ROWS
from hogbatch.simulate.engine import Host, Prepared
from hogbatch.simulate.hardware.gpu_cost import MergeTimes
from hogbatch.simulate.rehearsal.exchange import (
    IntervalInstants,
    LeaseOnReplica,
    RehearsedExchange,
    ReplicaInterval,
    TakenChange,
)
from hogbatch.simulate.rehearsal.noise import Noise
from hogbatch.simulate.rehearsal.replica import RehearsedReplica, RowNumbers
from hogbatch.store.merge import MERGE_RULES
from hogbatch.wire.messages import Failed, Lease, Ready, Welcome
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.device_profile import Profile, first_merge_interval, touches_few_rows
from hogbatch.workers.compute.merge_interval import MergeCost
from hogbatch.workers.compute.report import MergeReport, report


class DeviceCost(Protocol):
    """The times of a device, as `hogbatch.simulate.hardware.gpu_cost.GpuCost` predicts them."""

    densify: bool

    def train_seconds(self, rows: int) -> float:
        """Seconds of training on one batch of `rows` rows."""

    def evaluate_seconds(self, rows: int) -> float:
        """Seconds of evaluating `rows` rows."""

    def profile(self, rows: int) -> Profile:
        """(rows, seconds) of each measured batch size, for a training set of `rows` rows."""

    def merge(self, touched: int | None) -> MergeTimes:
        """Times of merging all parameters, or those of `touched` rows of a sparse first layer."""


class Awaited(Enum):
    """What the training thread waits for."""

    LEASE = "a lease"
    EXCHANGE = "the end of the exchange"


Steps = Generator[Awaited | float, None, None]  # a float is the simulated time to wait for


class RehearsedGpu:
    """Leases on one simulated device.

    `assign` returns the assignment of the worker that a Welcome admits. `noise` varies all times at
    random. With `shares_core`, the device is the host, and its training thread and its exchange
    thread take turns on one core.
    """

    device: Literal["gpu"] = "gpu"
    threads = 1

    def __init__(
        self,
        label: str,
        cost: DeviceCost,
        assign: Callable[[Welcome], Assignment],
        noise: Noise,
        *,
        shares_core: bool = False,
    ) -> None:
        self.label = label
        self._shares_core = shares_core
        self._exchanging = 0.0  # seconds of an exchange that prolong the next interval
        self._cost, self._assign = cost, assign
        self._noise = noise
        self._runs_ahead = label != "gpu:host"
        self._jobs: deque[Lease] = deque()
        self._rollbacks = 0
        self._intervals: Iterator[ReplicaInterval] = iter(())  # of the current lease
        self._free = 0.0  # when the device has done all that is queued
        self._begun = self._trained = 0.0  # the times of the interval that is queued
        self._awaited: Awaited | None = None

    def prepare(self, welcome: Welcome, host: Host) -> Prepared:
        self._host = host
        assignment = self._assignment = self._assign(welcome)
        profile = self._cost.profile(assignment.train.rows)
        by_rows = self._by_rows = self._touches_few_rows(profile[-1][0])
        self._replica = RehearsedReplica(assignment, by_rows=by_rows)
        self._merge_interval = first_merge_interval(
            welcome.merge_every,
            profile,
            assignment.train.rows,
            self._merge_cost,
            by_rows=by_rows,
        )
        self._exchange = RehearsedExchange(assignment, self._replica, host, self._exchanged)
        self._training = self._train()
        self._proceed()
        return Prepared(0.0, Ready(profile, merge=self._merge_interval.cost))

    def submit(self, lease: Lease) -> None:
        self._jobs.append(lease)
        if self._awaited is Awaited.LEASE:
            self._proceed()

    # Before training ------------------------------------------------------------------------------

    def _touches_few_rows(self, batch: int) -> bool:
        """Whether batches of `batch` rows touch so few features that only those are exchanged."""
        train = self._assignment.train
        if not MERGE_RULES[self._assignment.welcome.merge].additive:
            return False
        return train.sparse and not self._cost.densify and touches_few_rows(train, batch)

    def _merge_cost(self, rows: int) -> MergeCost:
        """The cost of merging an interval over the first `rows` rows, as a worker measures it."""
        inputs = self._assignment.train.inputs
        touched = None
        if self._by_rows:
            touched = len(np.unique(inputs.indices[: inputs.indptr[rows]]))
        times = self._cost.merge(touched)
        return MergeCost(times.blocking, times.merge + times.fetch)

    # The training thread --------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Let the training thread continue until it waits."""
        self._awaited = None
        awaited = next(self._training)
        if isinstance(awaited, Awaited):
            self._awaited = awaited
        else:
            self._host.later(awaited - self._host.now, self._proceed)

    def _exchanged(self) -> None:
        if self._awaited is Awaited.EXCHANGE:
            self._proceed()

    def _train(self) -> Steps:
        """Train all intervals; the change of one is merged while the next one is trained."""
        trained: ReplicaInterval | None = None  # whose change has not been taken yet
        while True:
            interval = self._next_interval()
            pull_needed = trained is None
            if trained is not None:
                taken = yield from self._hand_over(trained, interval)
                pull_needed = not taken or interval is None
            trained = interval
            if interval is not None:
                yield from self._queue_batches(interval, pull_needed)
            else:  # nothing to train: the pending merge must complete now
                yield from self._wait_for_exchange()
                yield from self._begin_lease()

    def _next_interval(self) -> ReplicaInterval | None:
        """The next interval; None if there is nothing to train immediately."""
        interval = next(self._intervals, None)
        if interval is None and self._jobs:
            lease = self._jobs[0]
            if lease.task == "train" and lease.rollbacks == self._rollbacks:
                self._intervals = self._split(self._jobs.popleft())
                interval = next(self._intervals)
        return interval

    def _split(self, lease: Lease) -> Iterator[ReplicaInterval]:
        """The intervals of one lease."""
        progress = LeaseOnReplica(lease, self._host.now)
        every = self._merge_interval.batches(lease.batch_size, lease.merge_every)
        interval_rows = lease.batch_size * every
        for start in range(lease.start, lease.stop, interval_rows):
            yield ReplicaInterval(progress, start, min(start + interval_rows, lease.stop))

    def _begin_lease(self) -> Steps:
        """Wait for a lease; reset the replica after a roll-back, and evaluate."""
        while not self._jobs:
            yield Awaited.LEASE
        lease = self._jobs[0]
        if lease.rollbacks != self._rollbacks:
            self._rollbacks = lease.rollbacks
            self._replica.reset()
        if lease.task == "evaluate":
            yield from self._evaluate(self._jobs.popleft())

    def _queue_batches(self, interval: ReplicaInterval, pull_needed: bool) -> Steps:
        """Queue the batches of an interval, and before them a pull if needed."""
        if pull_needed:
            yield from self._until(self._free)
            self._exchange.before_pull()
            self._replica.begin(self._rows(interval))
            pull = self._cost.merge(self._replica.touched).pull * self._noise.factor()
            yield from self._until(self._host.now + pull)
            self._free = self._begun = self._host.now
        self._free += self._training_seconds(interval) + self._exchanging
        self._exchanging = 0.0
        self._trained = self._free
        if not self._runs_ahead:
            yield from self._until(self._free)

    def _hand_over(
        self, trained: ReplicaInterval, upcoming: ReplicaInterval | None
    ) -> Generator[Awaited | float, None, bool]:
        """Queue taking the change of `trained`; return False if there is none to take."""
        ended = max(self._host.now, self._trained)
        finite = yield from self._exchange_done()
        if not finite:  # `trained` started from the refused parameters
            yield from self._until(self._free)
            self._replica.reset()
            self._exchange.skip(trained)
            return False
        ready = max(self._host.now, self._free)
        times = self._merge_times()
        if self._shares_core and upcoming is not None:
            times = self._take_turns(times)
        taken = ready + times.blocking
        instants = IntervalInstants(self._begun, self._trained, ended, ready, taken)
        nbytes = self._replica.exchanged_bytes
        change = TakenChange(trained, instants, times, nbytes, self._exchange.submit())
        self._host.later(ready - self._host.now, lambda: self._take(change, upcoming))
        self._free = self._begun = taken
        if not self._runs_ahead:
            yield from self._until(taken)
        return True

    def _take_turns(self, times: MergeTimes) -> MergeTimes:
        """Double the times of the exchange, and prolong the next interval by its undoubled time."""
        self._exchanging = times.merge + times.fetch
        return times._replace(merge=2 * times.merge, fetch=2 * times.fetch)

    def _take(self, change: TakenChange, upcoming: ReplicaInterval | None) -> None:
        """Compute the interval, and take its change; the exchange begins when it is complete.

        No other worker sees what is computed before this time, so it is computed only now.
        """
        lease = change.interval.progress.lease
        self._replica.train(self._rows(change.interval), lease.batch_size, lease.learning_rate)
        finite = self._replica.take(None if upcoming is None else self._rows(upcoming))

        def merge() -> None:
            try:
                self._exchange.begin(change, finite)
            except HogbatchError as error:
                self._host.post(Failed(f"{type(error).__name__}: {error}"[:1000]))

        self._host.later(change.times.blocking, merge)

    def _exchange_done(self) -> Generator[Awaited | float, None, bool]:
        """Wait until nothing is pending; return False if the last change was refused."""
        exchange = self._exchange
        if not exchange.pending:
            return True
        while exchange.outcome is None:
            yield Awaited.EXCHANGE
        outcome, exchange.outcome, exchange.pending = exchange.outcome, None, False
        if outcome.times is not None:
            self._merge_interval.observe(outcome.times)
        return outcome.finite

    def _wait_for_exchange(self) -> Steps:
        """Wait until no merge is pending."""
        finite = yield from self._exchange_done()
        if not finite:
            self._replica.reset()

    def _evaluate(self, lease: Lease) -> Steps:
        began, times = self._host.now, self._cost.merge(None)
        totals = self._replica.evaluate(lease)
        totals[ROWS] = lease.stop - lease.start
        sizes = _batch_sizes(lease.stop - lease.start, lease.batch_size)
        seconds = sum(count * self._cost.evaluate_seconds(size) for size, count in sizes)
        yield from self._until(began + (times.fetch + seconds) * self._noise.factor())
        self._free = self._host.now
        nbytes = self._replica.refreshed_bytes
        merge = MergeReport(transferred=nbytes, transfer_seconds=times.fetch)
        self._host.post(report(lease, totals, self._host.now - began, merge))

    # Times ----------------------------------------------------------------------------------------

    def _until(self, time: float) -> Steps:
        if time > self._host.now:
            yield time

    def _training_seconds(self, interval: ReplicaInterval) -> float:
        """Seconds of all batches, each of which varies at random."""
        sizes = _batch_sizes(interval.rows, interval.progress.lease.batch_size)
        seconds = sum(count * self._cost.train_seconds(size) for size, count in sizes)
        return seconds * self._noise.factor(sum(count for _, count in sizes))

    def _merge_times(self) -> MergeTimes:
        """The times of exchanging the interval that is queued."""
        times = self._cost.merge(self._replica.touched)
        return MergeTimes(*(seconds * self._noise.factor() for seconds in times))

    def _rows(self, interval: ReplicaInterval) -> RowNumbers:
        """The row numbers of an interval."""
        order = self._assignment.orders.row_order(interval.progress.lease.epoch)
        return order[interval.start : interval.stop]


def _batch_sizes(rows: int, batch: int) -> list[tuple[int, int]]:
    """The sizes of the batches of `rows` rows, with the number of batches of each."""
    sizes = [(batch, rows // batch), (rows % batch, 1)]
    return [(size, count) for size, count in sizes if size and count]
