"""Leases: which worker gets which rows next, and their return when the worker is lost."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hogbatch.coordinator.commands import Command, Send
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.ledger import Ledger
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import SUSPECT_DEATHS, Lease, Worker

SHORTEST = 0.1  # length of a lease before an evaluation, as a fraction of the usual length
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
    rows_of: Literal["train", "test"] = "test"  # the set of `evaluated`
    last: int = 0  # number of the last lease handed out

    def evaluate(self, rows_of: Literal["train", "test"]) -> None:
        """Make all rows of a set available for evaluation; those before must be done."""
        self.rows_of = rows_of
        rows = self.plan.test_rows if rows_of == "test" else self.plan.train_rows
        self.evaluated = Ledger(rows)

    def hand_out(self, phase: str, now: float, to: Sequence[Worker] | None) -> Iterator[Send]:
        """Give leases to the workers `to`, or to all: one to each before a second to any."""
        ledger = self.evaluated if phase == "evaluate" else self.epochs.rows
        if not ledger.todo or not (phase == "evaluate" or (phase == "train" and self.epochs.ready)):
            return
        if to is None:
            to = self.roster.with_room(LEASES_IN_FLIGHT)
        if phase == "evaluate":  # first those that need not fetch the model before
            to = sorted(to, key=lambda worker: worker.evaluation_start)
        for in_flight in range(LEASES_IN_FLIGHT):
            delays = False
            for worker in to:
                if len(worker.leases) == in_flight and self._may_take(worker, ledger, now):
                    if phase == "train" and not worker.trial_is_due(now):
                        # If one would, so would all after it: their batches take longer.
                        delays = delays or self.roster.would_delay(worker, ledger.ahead)
                        if delays:
                            continue
                    if phase == "train" and in_flight and self._left(worker, now) <= 0.0:
                        continue  # it has enough to do until then
                    if rows := self._rows(worker, ledger, now):
                        yield self._assign(worker, ledger, rows, now)

    def take_back(self, lease: Lease, died: bool) -> list[Command]:
        """Return the rows of `lease` to the queue; `died`: they may have killed their worker."""
        if lease.task == "train":
            return self.epochs.take_back(lease.number, died)
        self.evaluated.take_back(lease.number)
        return []

    def validate(self) -> None:
        """Assert the invariants: what the ledgers hold is what the workers hold."""
        workers = self.roster.attached.values()
        for ledger, task in ((self.epochs.rows, "train"), (self.evaluated, "evaluate")):
            ledger.validate()
            leases = [lease for worker in workers for lease in worker.leases.values()]
            numbers = [lease.number for lease in leases if lease.task == task]
            assert sorted(numbers) == sorted(ledger.held), (numbers, ledger.held)
        assert all(len(worker.leases) <= LEASES_IN_FLIGHT for worker in workers)

    def _may_take(self, worker: Worker, ledger: Ledger, now: float) -> bool:
        """Whether there are rows that this worker may be given.

        Rows on which several workers have died are given to a worker without other rows, so that
        it is clear which rows killed it.
        """
        if ledger is self.epochs.rows:
            new = worker.rows == 0
            if not worker.trains or (new and self.roster.handing_over(self.progress.seconds(now))):
                return False
        suspect = ledger.deaths >= SUSPECT_DEATHS
        conflict = suspect and worker.leases
        return bool(ledger.todo) and not conflict and not worker.holds_suspect_rows

    def _left(self, worker: Worker, now: float) -> float:
        """Seconds between the end of the leases of `worker` and the next evaluation.

        All leases should end when the evaluation is due, so that no worker waits for another one.
        """
        expected = sum(map(worker.expected_seconds, worker.leases.values()))
        left = self.progress.until_evaluation(now, self.roster.pause_seconds)
        return left if math.isnan(expected) else left - expected

    def _rows(self, worker: Worker, ledger: Ledger, now: float) -> int:
        """Rows of the next lease of `worker`; 0: the others should do the rest."""
        seconds = self.plan.lease_seconds
        if ledger.deaths >= SUSPECT_DEATHS:
            return self._batch(worker, ledger)  # a single one, to find the rows that kill workers
        if ledger is self.epochs.rows:
            seconds = min(seconds, max(self._left(worker, now), SHORTEST * seconds))
            return self.roster.lease_rows(worker, worker.batch_size, seconds, ledger.ahead)
        held = ledger.rows - ledger.acknowledged - ledger.remaining
        batch = worker.evaluation_batch
        return self.roster.evaluation_rows(worker, batch, seconds, ledger.remaining, held)

    def _batch(self, worker: Worker, ledger: Ledger) -> int:
        return worker.batch_size if ledger is self.epochs.rows else worker.evaluation_batch

    def _assign(self, worker: Worker, ledger: Ledger, rows: int, now: float) -> Send:
        training, deaths = ledger is self.epochs.rows, ledger.deaths
        size = self._batch(worker, ledger)
        self.last += 1
        start, stop = ledger.take(self.last, rows)
        lease = Lease(self.last, "train" if training else "evaluate", start, stop, size, deaths)
        lease.deadline = self.roster.deadline(worker, lease, now)
        if training:
            worker.assigned_at = now
        rate = self.plan.learning_rate.at(min(size, stop - start)) if training else 0.0
        rate *= self.recovery.rollbacks.rate_factor
        if worker.device == "cpu":
            rate *= worker.weight
        rollbacks = self.recovery.rollbacks.total
        work = worker.assign(lease, self.epochs.number, rate, rollbacks, self.rows_of)
        return Send(worker.key, work)
