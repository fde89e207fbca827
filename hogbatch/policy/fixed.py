"""The sizes given: every worker's lower limit, never changed."""

from collections.abc import Sequence

from hogbatch.policy.base import Settings, WorkerView


class Fixed:
    """`--policy fixed --cpu-batch 32 --gpu-batch 4096`: one size for each device."""

    def __init__(self, settings: Settings) -> None:
        del settings

    def first_size(self, worker: WorkerView) -> int:
        return worker.smallest

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        return worker.batch_size
