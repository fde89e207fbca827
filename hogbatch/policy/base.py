"""The interface of batch policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hogbatch.policy.noise_scale import NoiseScale


@dataclass(frozen=True, slots=True)
class WorkerView:
    """The view of one worker that a policy receives."""

    device: str  # "cpu" or "gpu"
    teams: int  # batches that it computes at the same time; 1 for a GPU
    smallest: int  # limits of its batch size, in rows
    largest: int
    batch_size: int = 0  # current rows per update; 0 before the first
    # updates of the shared model: batches (CPU, all threads) or merges (GPU); a worker that joins
    # late is credited with the lowest count of the other workers
    updates: float = 0
    seconds_per_row: float = float("nan")  # moving average; nan while it is not known
    # (rows of a batch, seconds), measured by the worker before training; empty if it did not
    profile: tuple[tuple[int, float], ...] = ()
    # seconds of a merge of a GPU worker: those for which it does not train, and those in which it
    # trains on
    merge: tuple[float, float] = (0.0, 0.0)
    merge_every: int = 0  # current batches between two merges, as in Operation
    trains: bool = True  # False: it is parked, which means that it only evaluates
    members: int = 1  # CPU threads that compute each batch together
    weight: float = 1.0  # current weight of its changes, as in Operation
    noise_scale: NoiseScale | None = None  # of the run's gradients; None while it is not known


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of one worker."""

    batch_size: int  # rows per update
    merge_every: int = 0  # batches between two merges of a GPU worker; 0: as merging takes time
    weight: float = 1.0  # of its changes: a factor of a CPU's learning rate or of a GPU's merges
    trains: bool = True  # False: it is parked, which means that it only evaluates
    reason: str = ""  # why it is parked, or trains again


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The settings that policies use."""

    alpha: float = 2.0  # resize factor of `paper-adaptive`
    beta: float = 1.0  # weight of a CPU worker's update: the fraction that survives conflicts
    critical_batch: float = 512.0  # rows in flight with which a run needs twice the rows
    # cost of a row in flight that a GPU has not seen, in rows of its batch: less if it is damped
    stale_cost: float = 1.0
    # rows until an evaluation or the end of an epoch: at least and at most; 0: very many
    rows_between_pauses: tuple[int, int] = (0, 0)


class BatchPolicy(Protocol):
    """Decides batch sizes, in rows per update.

    A user's policy is a class with these two methods whose constructor takes `PolicySettings`:
    `--policy module:Class`. The sizes it returns are clamped to the worker's limits. It may also
    have the method of :class:`JointPolicy`.
    """

    def first_size(self, worker: WorkerView) -> int:
        """Batch size of a worker that has just joined."""

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        """Next batch size of `worker`, which has just finished a lease.

        `others` are sorted by updates, ascending; updates of CPU workers are multiplied by beta.
        """


@runtime_checkable
class JointPolicy(BatchPolicy, Protocol):
    """Also decides how all workers train together."""

    def decide(self, workers: Sequence[WorkerView]) -> Sequence[Operation]:
        """The next operation of each of `workers`, which are all that are ready.

        Called when a worker becomes ready or leaves, and a few times a second. At least one of them
        must train.
        """
