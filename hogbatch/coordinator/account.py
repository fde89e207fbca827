"""What leases bring when they come back: rows, losses, speeds, and what went wrong."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hogbatch.coordinator.commands import Command, Record
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.leases import Leases
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery
from hogbatch.coordinator.worker import Lease, Worker
from hogbatch.wire.messages import Done

Resize = Callable[[Worker], int]  # the batch size that a worker is to go on with


@dataclass(slots=True)
class Account:
    """Takes leases back, done or not; `faults` counts by the names of telemetry's Faults."""

    epochs: Epochs
    leases: Leases
    progress: Progress
    recovery: Recovery
    resize: Resize
    faults: Counter[str] = field(default_factory=Counter)

    def take_in(self, worker: Worker, lease: Lease, done: Done, now: float) -> list[Record]:
        """Take in a lease that `worker` has done, or as much of it as it had memory for."""
        seconds = self.progress.seconds(now)
        if lease.task == "train":
            records = self._trained(worker, lease, done, seconds)
        else:
            records = []
            self._tested(worker, lease, done)
        return records + self._shrink(worker, lease, done, seconds) if done.too_large else records

    def take_back(self, worker: Worker, died: bool) -> list[Command]:
        """Take the leases of a worker that goes, and may have `died` of their rows."""
        commands: list[Command] = []
        quarantined = self.epochs.quarantined
        for lease in reversed(worker.leases.values()):
            commands += self.leases.take_back(lease, died)
        self.faults["leases_reissued"] += len(worker.leases)
        self.faults["rows_quarantined"] += self.epochs.quarantined - quarantined
        reissued = [[lease.start, lease.stop] for lease in worker.leases.values()]
        worker.leases.clear()
        left = Record("worker_left", {"worker": worker.name, "reissued": reissued})
        return [*commands, left]

    def _trained(self, worker: Worker, lease: Lease, done: Done, seconds: float) -> list[Record]:
        rows = self.epochs.rows.acknowledge(lease.number, done.rows)
        self.progress.add(done)
        self.faults["rows_skipped"] += done.skipped
        self.faults["merges_refused"] += done.refused
        worker.add(done)
        if not done.too_large:
            worker.resize(self.resize(worker), seconds)
        fields = worker.account(lease, done, rows, self.epochs.number, seconds)
        records = [Record("lease", fields)] if done.rows else []
        if done.refused:
            records.append(Record("merge_refused", fields | {"refused": done.refused}))
        elif done.skipped_row:
            named = fields | {"skipped": done.skipped, "row": done.skipped_row - 1}
            records += [Record("rows_skipped", each) for each in self.recovery.suspect(named)]
        return records

    def _tested(self, worker: Worker, lease: Lease, done: Done) -> None:
        if done.rows:
            worker.tested.add(done.seconds, done.rows)
        self.leases.test_rows.acknowledge(lease.number, done.rows)
        self.progress.tested.add(done)

    def _shrink(self, worker: Worker, lease: Lease, done: Done, seconds: float) -> list[Record]:
        """Let a worker go on with batches that its device has memory for."""
        too_large = lease.beyond_memory(done)
        if not worker.shrink(too_large, seconds):
            return []  # the second lease of the old size
        size = worker.batch_size if lease.task == "train" else worker.evaluation_batch
        return [Record("out_of_memory", {"worker": worker.name, "from": too_large, "to": size})]
