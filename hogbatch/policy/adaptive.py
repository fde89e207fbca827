"""Adaptive Hogbatch: batches that keep the workers' update counts together (Ma & Rusu 2020)."""

from collections.abc import Sequence

from hogbatch.policy.base import Settings, WorkerView


class Adaptive:
    """A worker behind all others in updates gets smaller batches, one ahead of all larger ones.

    With u = updates (times beta on the CPU): u < min(u of the others) divides the batch by alpha,
    u > max(u of the others) multiplies it, always within the worker's limits. It changes by one row
    at least, or a small alpha would never move a small batch.
    """

    def __init__(self, settings: Settings) -> None:
        self._alpha = settings.alpha
        self._beta = settings.beta

    def first_size(self, worker: WorkerView) -> int:
        """Start a CPU worker with its largest batch, a GPU worker with a quarter of it.

        A worker that is alone stays there. The largest batch of a thread is the fastest, and
        writes to the shared model least often, so that the others seldom have to fetch what they
        had in cache; only a GPU is a reason for smaller ones.
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
