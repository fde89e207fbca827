"""The rule of Adaptive Hogbatch as published: it balances update counts (Ma & Rusu 2020)."""

from collections.abc import Sequence

from hogbatch.policy.base import PolicySettings, WorkerView


class PaperAdaptive:
    """Resizes batches so that all workers make about the same number of updates.

    With u = updates (times beta on the CPU): u < min(u of the others) divides the batch by alpha,
    u > max(u of the others) multiplies it by alpha, within the worker's limits. The batch changes
    by at least one row, since a small alpha would otherwise never change a small batch.
    """

    def __init__(self, settings: PolicySettings) -> None:
        self._alpha = settings.alpha
        self._beta = settings.beta

    def first_size(self, worker: WorkerView) -> int:
        """The largest batch for a CPU worker, a quarter of the largest for a GPU worker.

        A worker that trains alone keeps this size. The largest batch is the fastest for a CPU
        thread. It also writes the shared model least often, which invalidates the fewest cache
        lines of other threads. Smaller batches only help to balance a GPU.
        """
        fraction = 1 if worker.device == "cpu" else 4
        return max(worker.largest // fraction, worker.smallest)

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        size = worker.batch_size
        if not others:
            return size
        if self._count(worker) < self._count(others[0]):
            return max(min(round(size / self._alpha), size - 1), worker.smallest)
        if self._count(worker) > self._count(others[-1]):
            return min(max(round(size * self._alpha), size + 1), worker.largest)
        return size

    def _count(self, worker: WorkerView) -> float:
        return worker.updates * (self._beta if worker.device == "cpu" else 1.0)
