"""Policies that never change the first batch size of a worker."""

from collections.abc import Sequence

from hogbatch.policy.base import PolicySettings, WorkerView


class Fixed:
    """The lower limit of each worker: `--policy fixed --cpu-batch 32 --gpu-batch 4096`."""

    def __init__(self, settings: PolicySettings) -> None:
        del settings

    def first_size(self, worker: WorkerView) -> int:
        return worker.smallest

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        return worker.batch_size


class Hogbatch(Fixed):
    """CPU+GPU Hogbatch: smallest batches on the CPU, largest on the GPU.

    Uses both devices fully; nearly all updates come from the CPU (Ma & Rusu 2020, section 5).
    """

    def first_size(self, worker: WorkerView) -> int:
        return worker.smallest if worker.device == "cpu" else worker.largest
