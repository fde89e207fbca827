"""The interface of batch policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What a policy may know about one worker."""

    device: str  # "cpu" or "gpu"
    threads: int  # of a CPU worker, each with its own batches; 1 for a GPU
    smallest: int  # limits of its batch size, in rows
    largest: int
    batch_size: int = 0  # current rows per update; 0 before the first
    # updates of the shared model: batches (CPU, all threads) or merges (GPU); a worker that joins
    # late is credited with the lowest count of the other workers
    updates: float = 0
    seconds_per_row: float = float("nan")  # moving average; nan before the first lease


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The flags that policies use."""

    alpha: float = 2.0  # resize factor of `adaptive`
    beta: float = 1.0  # weight of a CPU worker's update: the fraction that survives conflicts


class BatchPolicy(Protocol):
    """Decides batch sizes, in rows per update.

    A user's policy is a class with these two methods whose constructor takes `PolicySettings`:
    `--policy module:Class`. The sizes it returns are clamped to the worker's limits.
    """

    def first_size(self, worker: WorkerView) -> int:
        """Batch size of a worker that has just joined."""

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        """Next batch size of `worker`, which has just finished a lease.

        `others` are sorted by updates, ascending; updates of CPU workers are multiplied by beta.
        """
