"""Who gets which rows next: leases, handed out and taken back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hogbatch.coordinator.commands import Command, Send
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.ledger import Ledger
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.recovery import Recovery
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import ON_TRIAL, Lease, Worker

LEASES_IN_FLIGHT = 2  # one running, one waiting: hides the round trip


@dataclass(slots=True)
class Leases:
    """Rows for the workers of `roster`: of the epoch at hand, or of the test set."""

    plan: Plan
    roster: Roster
    epochs: Epochs
    recovery: Recovery
    test_rows: Ledger = field(init=False)
    last: int = 0  # number handed out

    def __post_init__(self) -> None:
        self.test_rows = Ledger(self.plan.test_rows)

    def hand_out(self, phase: str, now: float, to: Sequence[Worker] | None) -> Iterator[Send]:
        """Give the workers `to`, or else all, leases: a first to each before a second to any."""
        ledger = self.test_rows if phase == "evaluate" else self.epochs.rows
        if not ledger.todo or not (phase == "evaluate" or (phase == "train" and self.epochs.ready)):
            return
        if to is None:
            to = self.roster.with_room(LEASES_IN_FLIGHT)
        for in_flight in range(LEASES_IN_FLIGHT):
            for worker in to:
                if len(worker.leases) == in_flight and self._suits(worker, ledger):
                    if phase == "train" and self.roster.would_wait(worker, ledger.remaining):
                        break  # as would all after it, whose batches take longer
                    yield self._assign(worker, ledger, now)

    def take_back(self, lease: Lease, died: bool) -> list[Command]:
        """Put the rows of `lease` back, of a worker that may have `died` of them."""
        if lease.task == "train":
            return self.epochs.lose(lease.number, died)
        self.test_rows.give_back(lease.number)
        return []

    def _suits(self, worker: Worker, ledger: Ledger) -> bool:
        """Whether there is work that this worker may have.

        Rows on which workers have died again are handed out alone, so that it is clear what did it.
        """
        alone = ledger.deaths >= ON_TRIAL
        return bool(ledger.todo) and not (alone and worker.leases) and not worker.on_trial

    def _assign(self, worker: Worker, ledger: Ledger, now: float) -> Send:
        training, deaths = ledger is self.epochs.rows, ledger.deaths
        size = worker.batch_size if training else worker.evaluation_batch
        rows = size  # a single batch, to find the one that kills
        if deaths < ON_TRIAL:
            seconds = self.plan.lease_seconds
            rows = self.roster.lease_rows(worker, size, seconds, ledger.remaining)
        self.last += 1
        start, stop = ledger.take(self.last, rows)
        lease = Lease(self.last, "train" if training else "evaluate", start, stop, size, deaths)
        lease.due = self.roster.due(worker, lease, now)
        rate = self.plan.learning_rate.at(min(size, stop - start)) if training else 0.0
        rate *= self.recovery.rollbacks.rate_factor
        work = worker.take(lease, self.epochs.number, rate, self.recovery.rollbacks.total)
        return Send(worker.key, work)
