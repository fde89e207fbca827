"""Leases: which worker gets which rows next, and the accounting when they return."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hogbatch.config.sets import SetName
from hogbatch.coordinator.commands import Command, Record, Send
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.ledger import Ledger, PartQueue
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import SUSPECT_DEATHS, HeldLease, Worker, failed_batch
from hogbatch.events.event import LeaseDone, MergeRefused, OutOfMemory, RowsSkipped, WorkerLeft
from hogbatch.policy.throughput import LeaseSizing, lease_rows, rows_of_range
from hogbatch.wire.messages import Done, Lease

SHORTEST = 0.1  # length of a lease before an evaluation, as a fraction of the usual length
EVALUATING: Final = ("evaluate", "test")  # phases of the coordinator
LEASES_IN_FLIGHT = 2  # per worker: one running, one waiting, which hides the round trip


@dataclass(slots=True)
class Leases:
    """Hands out rows of the current epoch, or rows to evaluate, to the workers of `roster`."""

    plan: Plan
    roster: Roster
    epochs: Epochs
    recovery: Recovery
    progress: Progress
    evaluated: Ledger = field(default_factory=lambda: Ledger(0))
    evaluated_set: SetName = "validation"  # whose rows `evaluated` has
    last: int = 0  # number of the last lease handed out
    _evaluation_parts: frozenset[int] = field(init=False)  # of divided data, with validation rows

    def __post_init__(self) -> None:
        parts = enumerate(self.plan.parts_of("validation"))
        self._evaluation_parts = frozenset(part for part, rows in parts if rows)

    def begin_evaluation(self, name: SetName) -> None:
        """Make all rows of a set available; no worker may hold any."""
        self.evaluated = Ledger(self.plan.rows_of(name), self.plan.parts_of(name))
        self.evaluated_set = name

    @property
    def can_evaluate(self) -> bool:
        """Whether servers that are ready hold all validation rows."""
        if self.plan.merging is None:
            return True
        if self.plan.validation_rows and not self.roster.ready_workers:
            return False
        return all(map(self.roster.holders.ready, self._evaluation_parts))

    @property
    def evaluation_is_stuck(self) -> bool:
        """Whether only rows are left to evaluate that no server that is ready holds."""
        rows = self.evaluated
        busy = self.plan.merging is None or rows.held or rows.finished
        return not busy and not self.roster.can_take(rows)

    def missing_parts(self, phase: str) -> list[int]:
        """Parts of divided data that are needed in `phase` and that no attached server holds."""
        needed: Iterable[int] = self._evaluation_parts
        if phase == "train":
            needed = self.epochs.rows.parts_left
        elif phase in EVALUATING:
            needed = self.evaluated.parts_left
        return self.roster.holders.missing(needed)

    def hand_out(self, phase: str, now: float, to: Sequence[Worker] | None) -> Iterator[Send]:
        """Give leases to the workers `to`, or to all: one to each before a second to any."""
        evaluating = phase in EVALUATING
        ledger = self.evaluated if evaluating else self.epochs.rows
        ready = evaluating or (phase == "train" and self.epochs.ready)
        if not ledger.remaining or not ready:
            return
        asked = self.roster.with_room(LEASES_IN_FLIGHT) if to is None else to
        left_to_others = False
        for in_flight in range(LEASES_IN_FLIGHT):
            delays = False
            for worker in asked:
                if len(worker.leases) != in_flight:
                    continue
                part = ledger.next_part(worker.parts)
                if part is None or not self._may_take(worker, ledger, part, now):
                    continue
                if phase == "train" and not worker.trial_is_due(now):
                    # If one would, so would all after it: their batches take longer.
                    delays = (delays and not ledger.divided) or self._delays(worker, ledger, part)
                    if delays:
                        left_to_others = True
                        continue
                if phase == "train" and in_flight and self._has_enough(worker, now):
                    continue
                yield self._assign(worker, ledger, part, now)
        if left_to_others and to is not None and not ledger.held:
            # The others are idle, too: they had left the rows to one that has since become slower.
            yield from self.hand_out(phase, now, None)

    def _may_take(self, worker: Worker, ledger: Ledger, part: PartQueue, now: float) -> bool:
        """Whether this worker may be given rows of `part`, which has some.

        Rows on which several workers have died are given to a worker without other rows, so that
        it is clear which rows killed it.
        """
        if ledger is self.epochs.rows:
            new = worker.rows == 0
            if not worker.trains or (new and self.roster.handing_over(self.progress.seconds(now))):
                return False
            if self._available(worker, part) <= 0:
                return False
        conflict = part.deaths >= SUSPECT_DEATHS and worker.leases
        return not conflict and not worker.holds_suspect_rows

    @property
    def taken(self) -> int:
        """Rows trained on since the start, and those that workers hold for training."""
        return self.progress.rows + self.epochs.rows.held_rows

    def _available(self, worker: Worker, part: PartQueue) -> int:
        """Training rows of the first range of `part` that `worker` may be given.

        The last lease before a pause ends with a whole batch.
        """
        limit, pause = self.plan.stopping.max_rows, self.progress.pause_rows
        if limit is None and math.isinf(pause):
            return part.next_rows
        rows, taken, batch = part.next_rows, self.taken, worker.batch_size
        if math.isfinite(pause):
            rows = min(rows, batch * math.ceil((pause - taken) / batch))
        return rows if limit is None else min(rows, limit - taken)

    def _delays(self, worker: Worker, ledger: Ledger, part: PartQueue) -> bool:
        """Whether others would finish the rows that are left for it before its next batch."""
        shared = part.number if ledger.divided else None
        return self.roster.would_delay(worker, ledger.ahead(worker.parts), shared)

    def _is_new(self, worker: Worker) -> bool:
        """Whether others train beside a GPU worker whose speed is not known from training.

        If it is slower than when it measured its batches, they would wait for it before the first
        evaluation.
        """
        return worker.is_new_gpu and self.roster.several_train

    def _has_enough(self, worker: Worker, now: float) -> bool:
        """Whether a worker with a lease should get no other one before it is done."""
        return self._is_new(worker) or self._left(worker, now) <= 0.0

    def _left(self, worker: Worker, now: float) -> float:
        """Seconds between the end of the leases of `worker` and the next evaluation.

        All leases should end when the evaluation is due, so that no worker waits for another one.
        """
        expected = worker.seconds_ahead
        left = self.progress.until_evaluation(now, self.roster.pause_seconds)
        return left if math.isnan(expected) else left - expected

    def _rows(self, worker: Worker, ledger: Ledger, part: PartQueue, now: float) -> int:
        """Rows of the next lease of `worker`.

        Those of an evaluation may be more than `part` has: the length of leases depends on all rows
        that are left for the worker.
        """
        training, usual = ledger is self.epochs.rows, self.plan.lease_seconds
        available = self._available(worker, part) if training else part.next_rows
        if part.deaths >= SUSPECT_DEATHS:  # a single batch, to find the rows that kill workers
            return min(self._batch(worker, ledger), available)
        shared = part.number if ledger.divided else None
        left = max(self._left(worker, now), SHORTEST * usual) if training else usual
        row_seconds = worker.speed.value if training else worker.evaluation_row_seconds
        sizing = LeaseSizing(
            batch_size=self._batch(worker, ledger),
            teams=worker.teams,
            seconds_per_row=math.nan if training and self._is_new(worker) else row_seconds,
            target_seconds=min(usual, left),
            remaining=ledger.ahead(worker.parts) if training else ledger.left(worker.parts),
            fraction=self.roster.fraction(worker, shared, evaluating=not training),
            merges=training and worker.device == "gpu",
            workers=self.roster.ready_workers,
            turn=worker.turn,
        )
        rows = lease_rows(sizing)
        return rows_of_range(rows, worker.batch_size, available) if training else rows

    def _batch(self, worker: Worker, ledger: Ledger) -> int:
        return worker.batch_size if ledger is self.epochs.rows else worker.evaluation_batch

    def _assign(self, worker: Worker, ledger: Ledger, part: PartQueue, now: float) -> Send:
        training, deaths = ledger is self.epochs.rows, part.deaths
        size, rows = self._batch(worker, ledger), self._rows(worker, ledger, part, now)
        self.last += 1
        start, stop = ledger.take(self.last, rows, worker.parts)
        if training:
            worker.assigned_at = now
        batch, epoch = min(size, stop - start), self.epochs.number
        rate = self.plan.learning_rate.at(batch, epoch) if training else 0.0
        rate *= self.recovery.rollbacks.rate_factor
        lease = Lease(
            number=self.last,
            task="train" if training else self.evaluated_set,
            epoch=epoch,
            start=start,
            stop=stop,
            batch_size=size,
            learning_rate=rate * worker.weight if worker.device == "cpu" else rate,
            fence=worker.fence,
            rollbacks=self.recovery.rollbacks.total,
            merge_every=worker.merge_every,
            weight=worker.weight if worker.device == "gpu" else 1.0,
        )
        deadline = self.roster.deadline(worker, lease, now)
        worker.leases[lease.number] = HeldLease(lease, deaths, deadline)
        return Send(worker.key, lease)


@dataclass(slots=True)
class LeaseAccounting:
    """Accounts for returned leases, done or not; `faults` counts the fields of records.Faults.

    It resizes batches only where a device ran out of memory; otherwise that is the policy's task.
    """

    epochs: Epochs
    leases: Leases
    progress: Progress
    recovery: Recovery
    faults: Counter[str] = field(default_factory=Counter)

    def credit(self, worker: Worker, lease: Lease, done: Done, seconds: float) -> list[Record]:
        """Add the work of `worker` on `lease`, which ended at training second `seconds`.

        The worker has done the whole lease, or as much of it as fitted into its memory.
        """
        if lease.task == "train":
            records = self._credit_training(worker, lease, done, seconds)
        else:
            records = []
            if done.rows:
                worker.evaluation_speed.add(done.seconds, done.rows)
            self.leases.evaluated.acknowledge(lease.number, done.rows)
            self.progress.evaluated.add(done)
        return records + self._shrink(worker, lease, done, seconds) if done.too_large else records

    def take_back(self, worker: Worker, died: bool) -> list[Command]:
        """Take back the leases of a worker that leaves; `died`: their rows may have killed it."""
        commands: list[Command] = []
        quarantined = self.epochs.quarantined
        held = [held.lease for held in worker.leases.values()]
        for lease in reversed(held):
            if lease.task == "train":
                commands += self.epochs.take_back(lease.number, died)
            else:
                self.leases.evaluated.take_back(lease.number)
        self.faults["leases_reissued"] += len(held)
        self.faults["rows_quarantined"] += self.epochs.quarantined - quarantined
        reissued = [[lease.start, lease.stop] for lease in held if lease.task == "train"]
        worker.leases.clear()
        discarded = self.epochs.rows.discard(worker.unmerged)
        self.progress.rows -= sum(stop - start for start, stop in discarded)
        reissued += map(list, discarded)
        left = WorkerLeft(worker=worker.name, epoch=self.epochs.number, reissued=reissued)
        return [*commands, Record(left)]

    def _credit_training(
        self, worker: Worker, lease: Lease, done: Done, seconds: float
    ) -> list[Record]:
        ledger = self.epochs.rows
        if worker.device == "server":
            rows = ledger.keep_unmerged(lease.number, done.rows)
            worker.unmerged.append(lease.number)
        else:
            rows = ledger.acknowledge(lease.number, done.rows)
        self.progress.add(done)
        if done.noise is not None:
            self.leases.roster.noise.add(done.noise, self.progress.rows)
        self.faults["rows_skipped"] += done.skipped
        self.faults["merges_refused"] += done.refused
        worker.credit(done)
        fields = worker.lease_fields(lease, done, rows, self.epochs.number, seconds)
        records = []
        if done.rows:
            records.append(Record(LeaseDone(**fields, busy_seconds=round(done.seconds, 6))))
        if done.refused:
            if self.recovery.names_another():
                records.append(Record(MergeRefused(**fields, refused=done.refused)))
        elif done.skipped_row:
            skipped = RowsSkipped(**fields, skipped=done.skipped, row=done.skipped_row - 1)
            records += [Record(each) for each in self.recovery.suspect(skipped)]
        return records

    def _shrink(self, worker: Worker, lease: Lease, done: Done, seconds: float) -> list[Record]:
        """Limit a worker whose device ran out of memory to batches that fit."""
        too_large = failed_batch(lease, done)
        if not worker.shrink(too_large, seconds):
            return []  # the second lease of the old size
        size = worker.batch_size if lease.task == "train" else worker.evaluation_batch
        return [Record(OutOfMemory(worker.name, too_large, size))]
