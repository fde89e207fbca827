"""What a policy is asked, and what it may know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What a policy may know of one worker."""

    device: str  # "cpu" or "gpu"
    threads: int  # of a CPU worker, each with batches of its own; 1 for a GPU
    smallest: int  # limits of its batch, in rows
    largest: int
    batch_size: int = 0  # rows behind its last updates, 0 before the first
    updates: float = 0  # of the shared model: batches (CPU, all threads) or merges (GPU); a late
    # worker is credited with enough to start level
    seconds_per_row: float = float("nan")  # smoothed; nan before the first lease


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags that concern policies."""

    alpha: float = 2.0  # factor by which `adaptive` changes a batch
    beta: float = 1.0  # share of a CPU worker's updates that survive conflicts


class BatchPolicy(Protocol):
    """Decides batch sizes, in rows behind one update.

    A user's policy is a class with these two methods, made with the `Settings`:
    `--policy module:Class`. What it returns is clamped to the worker's limits.
    """

    def first_size(self, worker: WorkerView) -> int:
        """Rows of the first batch of a worker that has just joined."""

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        """Rows of the next batches of `worker`, which has just finished a lease.

        `others` come in ascending order of updates, those of CPU workers times beta.
        """
