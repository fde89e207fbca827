"""The decisions of the batch policy: batch sizes, merges, weights, and who trains."""

import math
from dataclasses import dataclass, field

from hogbatch.coordinator.commands import Record
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import Worker
from hogbatch.errors import PolicyError
from hogbatch.events.event import WorkerParked, WorkerUnparked
from hogbatch.policy.base import BatchPolicy, JointPolicy, Operation

REVIEW_SECONDS = 0.25  # of training, between two joint decisions about the same workers
MANY = 64  # workers; from here on joint decisions, whose cost grows with their number, are rarer


@dataclass(slots=True)
class Decisions:
    """Asks `policy`, and applies its answers. A policy that fails must end the run."""

    policy: BatchPolicy
    roster: Roster
    failure: str | None = None  # message of the policy's PolicyError
    _next_review: float = field(default=-math.inf)  # training seconds

    def first_size(self, worker: Worker) -> int:
        """Rows of the first batches of `worker`."""
        try:
            return self.policy.first_size(worker.view())
        except PolicyError as error:
            self.failure = str(error)
            return worker.limits[0]

    def resize(self, worker: Worker, seconds: float) -> None:
        """Set the size of the next batches of `worker`, which has finished a lease."""
        try:
            size = self.policy.next_size(worker.view(), self.roster.others(worker))
        except PolicyError as error:
            self.failure = str(error)
        else:
            worker.resize(size, seconds)

    def review(self, seconds: float) -> list[Record]:
        """Decide again how all workers train if the last time was some training seconds ago."""
        return self.decide(seconds) if seconds >= self._next_review else []

    def workers_changed(self, seconds: float) -> list[Record]:
        """Decide how all workers train: one is ready, or has left, or its speed is known."""
        if len(self.roster.attached) >= MANY and self.roster.any_trains:
            return []  # the next review decides
        return self.decide(seconds)

    def decide(self, seconds: float) -> list[Record]:
        """Decide how all workers train, at training second `seconds`."""
        self._next_review = seconds + REVIEW_SECONDS * max(1, len(self.roster.attached) / MANY)
        if not isinstance(self.policy, JointPolicy):
            return []
        workers = [worker for worker in self.roster.attached.values() if worker.ready]
        if not workers:
            return []
        try:
            operations = self.policy.decide([worker.view() for worker in workers])
        except PolicyError as error:
            self.failure = str(error)
            return []
        records: list[Record] = []
        for worker, operation in zip(workers, operations, strict=True):
            records += self._apply(worker, operation, seconds)
        return records

    def _apply(self, worker: Worker, operation: Operation, seconds: float) -> list[Record]:
        worker.resize(operation.batch_size, seconds)
        worker.merge_every, worker.weight = operation.merge_every, operation.weight
        if operation.trains == worker.trains:
            return []
        if operation.trains:
            self.roster.resume_training(worker, seconds)
            return [Record(WorkerUnparked(worker.name))]
        self.roster.park(worker, seconds)
        return [Record(WorkerParked(worker.name, operation.reason))]
