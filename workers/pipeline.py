"""The training thread of a GPU worker: leases in, changes of the replica out.

Like the exchange thread, it is a generator; see :class:`hogbatch.workers.exchange.Pause`.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.errors import HogbatchError
from hogbatch.kernels.contract import ROWS, TOTALS
from hogbatch.kernels.gpu.device import Device, memory_shortage
from hogbatch.wire.messages import Lease
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.device_profile import Profile, first_merge_interval, touches_few_rows
from hogbatch.workers.compute.merge_interval import MergeCost, MergeInterval
from hogbatch.workers.compute.report import report
from hogbatch.workers.exchange import (
    Interval,
    IntervalEvents,
    LeaseProgress,
    Pause,
    ReplicaExchange,
    Steps,
)
from hogbatch.workers.replica import Replica
from hogbatch.workers.session import Post
from hogbatch.workers.transfers import Transfers


class ReplicaTrainer(Protocol):
    """A replica and the sets on its device, as :class:`hogbatch.workers.trainer.Trainer`."""

    @property
    def device(self) -> Device: ...

    @property
    def replica(self) -> Replica: ...

    def exchange_touched_rows(self) -> bool: ...

    def reserve(self, batch: int) -> None: ...

    def release(self) -> None: ...

    def follow(self, epoch: int) -> None: ...

    def rows(self, start: int, stop: int) -> Any: ...

    def train(self, start: int, stop: int, batch: int, rate: float) -> None: ...

    def evaluate(self, lease: Lease) -> NDArray[np.float64]: ...

    def input_transfers(self) -> Transfers: ...


def choose_exchange(
    trainer: ReplicaTrainer,
    assignment: Assignment,
    profile: Profile,
    cost: Callable[[int], MergeCost],
    *,
    densify: bool,
) -> MergeInterval:
    """Choose which parameters a merge transfers, and return the first merge interval.

    If a batch touches few rows of a sparse first layer, only those are exchanged; with `densify`,
    batches touch all rows. `cost` is that of `first_merge_interval`.
    """
    train = assignment.train
    few = train.sparse and not densify and touches_few_rows(train, profile[-1][0])
    by_rows = few and trainer.exchange_touched_rows()
    if not by_rows:
        trainer.replica.exchange_all()
    chosen = assignment.welcome.merge_every
    return first_merge_interval(chosen, profile, train.rows, cost, by_rows=by_rows)


class Pipeline:
    """Trains the leases in `jobs`; the change of an interval is merged while the next one trains.

    `merge_interval` decides on the lengths of intervals. `exchange` is still to be run.
    """

    def __init__(
        self,
        jobs: SimpleQueue[Lease],
        trainer: ReplicaTrainer,
        assignment: Assignment,
        merge_interval: MergeInterval,
        post: Post,
    ) -> None:
        self._jobs, self._trainer, self._replica = jobs, trainer, trainer.replica
        self._merge_interval, self._post = merge_interval, post
        shared = assignment.model, assignment.fence, assignment.welcome.staleness_damping
        self.exchange = ReplicaExchange(trainer.replica, *shared, merge_interval.observe, post)
        self._device = trainer.device
        self._upcoming: Lease | None = None  # a lease that has been taken from `jobs`
        self._intervals: Iterator[Interval] = iter(())  # the rest of the lease in progress
        self._rollbacks = 0
        self._begun: Any = None  # events of the interval in progress
        self._trained: Any = None

    def steps(self) -> Steps:
        """Train all intervals; raises the exceptions of the exchange thread."""
        trained: Interval | None = None  # the interval whose change has not been taken yet
        while True:
            interval = self._next_interval()
            pull_needed = trained is None or (yield from self._hand_over(trained, interval))
            trained = None
            if interval is None:  # nothing to train: the pending merge must complete now
                yield from self._wait_for_exchange()
                yield from self._next_lease()
            elif (yield from self._run(interval, pull_needed)):
                trained = interval

    def _next_interval(self) -> Interval | None:
        """The next interval; None if there is nothing to train immediately."""
        interval = next(self._intervals, None)
        while interval is None:
            if self._upcoming is None and not self._jobs.empty():
                self._upcoming = self._jobs.get()
            lease = self._upcoming
            if lease is None or lease.task != "train" or lease.rollbacks != self._rollbacks:
                return None
            self._upcoming = None
            if self._reserve(lease):
                self._intervals = self._split(lease)
                interval = next(self._intervals)
        return interval

    def _next_lease(self) -> Steps:
        """Wait for a lease; reset the replica after a roll-back, and evaluate."""
        if self._upcoming is None:
            yield self._jobs
            self._upcoming = self._jobs.get()
        lease = self._upcoming
        if lease.rollbacks != self._rollbacks:
            self._rollbacks = lease.rollbacks
            self._replica.reset()
        if lease.task != "train":
            self._upcoming = None
            yield from self._evaluate(lease)

    def _split(self, lease: Lease) -> Iterator[Interval]:
        """The intervals of one lease, until memory runs out."""
        progress = LeaseProgress(lease, self._device.host_time(), lease.stop - lease.start)
        every = self._merge_interval.batches(lease.batch_size, lease.merge_every)
        interval_rows = lease.batch_size * every
        for start in range(lease.start, lease.stop, interval_rows):
            if not progress.too_large:
                stop = min(start + interval_rows, lease.stop)
                yield Interval(progress, start, stop, stop == lease.stop)

    def _run(self, interval: Interval, pull_needed: bool) -> Generator[Any, None, bool]:
        """Train the replica, pulled first if `pull_needed`; return False if memory ran out."""
        lease, trainer = interval.progress.lease, self._trainer
        trainer.follow(lease.epoch)
        if pull_needed:
            self.exchange.before_pull()
            self._replica.begin(trainer.rows(interval.start, interval.stop))
            yield Pause.COMPLETE
            self._begun = self._device.record_event()
        batches = interval.start, interval.stop, lease.batch_size, lease.learning_rate
        shortage = memory_shortage(self._device, partial(trainer.train, *batches))
        if shortage is not None:
            _log_out_of_memory(lease, shortage)
            yield from self._return_rest(interval)
            return False
        self._trained = self._device.record_event()
        inputs = trainer.input_transfers()
        interval.progress.inputs.add(inputs.bytes, inputs.seconds)
        yield Pause.QUEUED
        return True

    def _hand_over(
        self, trained: Interval, upcoming: Interval | None
    ) -> Generator[Any, None, bool]:
        """Submit the change of `trained`; return whether the next interval has to pull first."""
        rows = None
        if upcoming is not None:
            self._trainer.follow(upcoming.progress.lease.epoch)
            rows = self._trainer.rows(upcoming.start, upcoming.stop)
        ended = self._device.record_event()
        if not (yield from self._exchanged()):  # `trained` started from refused parameters
            yield Pause.COMPLETE
            self._replica.reset()
            self.exchange.skip(trained)
            return True
        ready = self._device.record_event()
        taken = self._replica.hand_over(rows)
        events = IntervalEvents(self._begun, self._trained, ended, ready, taken)
        self.exchange.submit(trained, events)
        self._begun = taken
        yield Pause.QUEUED
        return False

    def _exchanged(self) -> Generator[Any, None, bool]:
        """Wait until no merge is pending; return False if the last change was refused."""
        if self.exchange.pending:
            yield self.exchange.outcomes
        return self.exchange.wait()

    def _wait_for_exchange(self) -> Steps:
        if not (yield from self._exchanged()):
            self._replica.reset()

    def _reserve(self, lease: Lease) -> bool:
        """Allocate for the batches of `lease`; return it as too large if memory runs out."""
        reserve = partial(self._trainer.reserve, lease.batch_size)
        shortage = memory_shortage(self._device, reserve)
        if shortage is not None:
            _log_out_of_memory(lease, shortage)
            self._post(report(lease, np.zeros(TOTALS), 0.0, rows=0, too_large=lease.batch_size))
            self._trainer.release()
        return shortage is None

    def _return_rest(self, interval: Interval) -> Steps:
        """Keep what has been merged and return the rest of the lease, because memory ran out."""
        progress = interval.progress
        self._replica.discard()
        yield from self._wait_for_exchange()
        progress.rows = interval.start - progress.lease.start
        progress.too_large = progress.lease.batch_size
        self.exchange.skip(Interval(progress, interval.start, interval.start, last=True))
        self._trainer.release()

    def _evaluate(self, lease: Lease) -> Steps:
        began = self._device.host_time()
        self._replica.refresh()
        totals = self._trainer.evaluate(lease)
        yield Pause.COMPLETE
        totals[ROWS] = lease.stop - lease.start
        seconds = self._device.host_time() - began
        pull = self._replica.transfers.take()
        self._post(
            report(lease, totals, seconds, transferred=pull.bytes, transfer_seconds=pull.seconds)
        )


def _log_out_of_memory(lease: Lease, shortage: str) -> None:
    """Log that the batches do not fit; raise HogbatchError if they cannot be smaller."""
    if lease.batch_size == 1:
        raise HogbatchError(f"a batch of one row does not fit into memory: {shortage}")
    logging.warning("out of memory with batches of %d rows: %s", lease.batch_size, shortage)
