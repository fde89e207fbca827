"""Adaptive Hogbatch: who trains, with which batches, and how often GPUs merge."""

from collections.abc import Sequence
from dataclasses import replace

from hogbatch.policy.base import Operation, PolicySettings, WorkerView
from hogbatch.policy.progress import Load, best_operation, with_measured_speed
from hogbatch.policy.selection import Operations, Selection


class Adaptive:
    """Lets those workers train that learn fastest together, as measured speeds predict.

    The others are parked. The batch sizes, and the numbers of batches between the merges of GPUs,
    are those with which the workers that train learn fastest together. A worker whose speed is not
    known yet trains. See `hogbatch.policy.progress` and docs/batch-policy.md.
    """

    def __init__(self, settings: PolicySettings) -> None:
        self._settings = settings

    def first_size(self, worker: WorkerView) -> int:
        """The batch with which a worker learns fastest alone, as far as it was measured."""
        if not worker.profile:
            return worker.largest
        view = _without_faster_small_batches(worker)
        return best_operation(view, Load(), self._settings).batch_size

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        """The current size: `decide` chooses sizes."""
        return worker.batch_size

    def decide(self, workers: Sequence[WorkerView]) -> list[Operation]:
        """The operation of each of `workers` from now on."""
        pauses = self._settings.rows_between_pauses
        bounded = map(_without_faster_small_batches, workers)
        views = [with_measured_speed(worker, pauses) for worker in bounded]
        known = [index for index, view in enumerate(views) if view.profile]
        selection = Selection([views[index] for index in known], self._settings)
        training = selection.select()
        operations = [Operation(worker.batch_size) for worker in workers]
        for number, index in enumerate(known):
            if number in training:
                operations[index] = training[number]
            else:
                reason = _change(selection, training, number)
                operations[index] = replace(operations[index], trains=False, reason=reason)
        return operations


def _without_faster_small_batches(worker: WorkerView) -> WorkerView:
    """`worker` with a profile in which no smaller batch is faster per row than the largest one.

    So a CPU worker uses smaller batches only to have fewer rows in flight. GPUs are not changed.
    """
    if worker.device != "cpu":
        return worker
    largest = [seconds / rows for rows, seconds in worker.profile if rows >= worker.largest]
    least = min(largest, default=0.0)
    profile = tuple((rows, max(seconds, rows * least)) for rows, seconds in worker.profile)
    return replace(worker, profile=profile)


def _change(selection: Selection, training: Operations, number: int) -> str:
    """The change of the speed of learning if the worker `number` trained, too."""
    together = selection.operate([*training, number])
    ratio = selection.rate(together) / selection.rate(training)
    change = f"{1 - ratio:.0%} slower" if ratio < 1 else f"only {ratio - 1:.0%} faster"
    most = f"without stale gradients at most {selection.bound(training, number) - 1:.0%} faster"
    return f"with it, learning would be {change} (predicted; {most})"
