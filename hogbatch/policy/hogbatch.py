"""CPU+GPU Hogbatch: smallest batches on the CPU, largest on the GPU (Ma & Rusu 2020, section 5)."""

from collections.abc import Sequence

from hogbatch.policy.base import PolicySettings, WorkerView


class Hogbatch:
    """Uses both devices fully; nearly all updates come from the CPU."""

    def __init__(self, settings: PolicySettings) -> None:
        del settings

    def first_size(self, worker: WorkerView) -> int:
        return worker.smallest if worker.device == "cpu" else worker.largest

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        return worker.batch_size
