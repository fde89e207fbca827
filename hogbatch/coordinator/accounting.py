"""Accounting for returned leases: rows, losses, speeds and faults."""

from collections import Counter
from dataclasses import dataclass, field

from hogbatch.coordinator.commands import Command, Record
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.leases import Leases
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery
from hogbatch.coordinator.worker import Worker, failed_batch
from hogbatch.events.event import LeaseDone, MergeRefused, OutOfMemory, RowsSkipped, WorkerLeft
from hogbatch.wire.messages import Done, Lease


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
            self._credit_evaluation(worker, lease, done)
        return records + self._shrink(worker, lease, done, seconds) if done.too_large else records

    def take_back(self, worker: Worker, died: bool) -> list[Command]:
        """Take back the leases of a worker that leaves; `died`: their rows may have killed it."""
        commands: list[Command] = []
        quarantined = self.epochs.quarantined
        held = [held.lease for held in worker.leases.values()]
        for lease in reversed(held):
            commands += self.leases.take_back(lease, died)
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

    def _credit_evaluation(self, worker: Worker, lease: Lease, done: Done) -> None:
        worker.credit_evaluation(done)
        self.leases.evaluated.acknowledge(lease.number, done.rows)
        self.progress.evaluated.add(done)

    def _shrink(self, worker: Worker, lease: Lease, done: Done, seconds: float) -> list[Record]:
        """Limit a worker whose device ran out of memory to batches that fit."""
        too_large = failed_batch(lease, done)
        if not worker.shrink(too_large, seconds):
            return []  # the second lease of the old size
        size = worker.batch_size if lease.task == "train" else worker.evaluation_batch
        return [Record(OutOfMemory(worker.name, too_large, size))]
