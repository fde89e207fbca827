"""CPU+GPU Hogbatch: smallest batches on the CPU, largest on the GPU (Ma & Rusu 2020, section 5)."""

from collections.abc import Sequence

from hogbatch.policy.base import Settings, WorkerView


class Hogbatch:
    """Both devices at full use; the CPU makes nearly all of the updates."""

    def __init__(self, settings: Settings) -> None:
        del settings

    def first_size(self, worker: WorkerView) -> int:
        return worker.smallest if worker.device == "cpu" else worker.largest

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        return worker.batch_size
