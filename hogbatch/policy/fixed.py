"""Fixed batch sizes: always the lower limit of each worker."""

from collections.abc import Sequence

from hogbatch.policy.base import PolicySettings, WorkerView


class Fixed:
    """One size per device: `--policy fixed --cpu-batch 32 --gpu-batch 4096`."""

    def __init__(self, settings: PolicySettings) -> None:
        del settings

    def first_size(self, worker: WorkerView) -> int:
        return worker.smallest

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        return worker.batch_size
