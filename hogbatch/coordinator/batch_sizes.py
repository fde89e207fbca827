"""Batch sizes, as the batch policy decides them."""

from dataclasses import dataclass

from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import Worker
from hogbatch.errors import PolicyError
from hogbatch.policy.base import BatchPolicy


@dataclass(slots=True)
class BatchSizes:
    """Asks `policy` for batch sizes. A policy that fails must end the run."""

    policy: BatchPolicy
    roster: Roster
    failure: str = ""  # message of the policy's PolicyError

    def first(self, worker: Worker) -> int:
        """Rows of the first batches of `worker`; a resumed run first reuses its saved sizes."""
        size = self.roster.inherited_size(worker.device)
        if size is not None:
            return size
        try:
            return self.policy.first_size(worker.view())
        except PolicyError as error:
            return self._failed(worker, error)

    def next(self, worker: Worker) -> int:
        """Rows of the next batches of `worker`, which has finished a lease."""
        try:
            return self.policy.next_size(worker.view(), self.roster.others(worker))
        except PolicyError as error:
            return self._failed(worker, error)

    def _failed(self, worker: Worker, error: PolicyError) -> int:
        self.failure = str(error)
        return worker.batch_size or worker.limits[0]
