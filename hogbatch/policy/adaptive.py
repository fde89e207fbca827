"""Adaptive Hogbatch: who trains, with which batches, and how often GPUs merge."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hogbatch.policy.base import Operation, PolicySettings, WorkerView
from hogbatch.policy.progress import Load, best_operation, load, with_measured_speeds

# Predicted, by which a worker must speed up others to train with them. Where it was less, runs were
# slower about as often as faster.
MIN_GAIN: Final = 1.1
MIN_RETURN_GAIN: Final = 1.05  # the factor by which that of a parked worker must be higher
MIN_REPLACEMENT_GAIN: Final = 1.3  # or it must be faster by this factor than the one it replaces
SWEEPS: Final = 2  # over the workers; more would hardly change their operations

Operations = dict[int, Operation]  # of workers, by their index


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
        bounded = [_without_faster_small_batches(worker) for worker in workers]
        views = with_measured_speeds(bounded, self._settings.rows_between_pauses)
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


class Selection:
    """Selects out of `workers`, which must all have a profile.

    A unit is a GPU worker, or all CPU workers together: these train or are parked together.
    """

    def __init__(self, workers: Sequence[WorkerView], settings: PolicySettings) -> None:
        self._workers, self._settings = workers, settings
        cpus = [number for number, worker in enumerate(workers) if worker.device == "cpu"]
        gpus = [[number] for number, worker in enumerate(workers) if worker.device != "cpu"]
        self._units = [cpus, *gpus] if cpus else gpus

    def select(self) -> Operations:
        """Return the operations of the workers that should train.

        Begins with the unit that learns fastest alone, and adds each other one with which learning
        is clearly faster.
        """
        chosen: Operations = {}
        for unit in sorted(self._units, key=self._rate_alone, reverse=True):
            together = self.operate([*chosen, *unit])
            least = MIN_GAIN if self._trains(unit) else MIN_GAIN * MIN_RETURN_GAIN
            if self.rate(together) > self.rate(chosen) * least:
                chosen = together
        return chosen

    def operate(self, workers: Iterable[int]) -> Operations:
        """Return the operations with which `workers` learn fastest together.

        Each in turn gets the best operation for what the others do.
        """
        operations: Operations = {}
        total = Load()
        for _ in range(SWEEPS):
            for number in workers:
                if number in operations:
                    total -= self._load(number, operations[number])
                worker = self._workers[number]
                operations[number] = best_operation(worker, total, self._settings)
                total += self._load(number, operations[number])
        return operations

    def rate(self, operations: Mapping[int, Operation]) -> float:
        """Return the rate of learning with these operations."""
        return self._together(operations).rate(self._settings)

    def bound(self, training: Operations, number: int) -> float:
        """Return the factor by which the worker `number` could speed up those that train, at most.

        That is with common batches, to which each adds rows in proportion to its speed: then it is
        (1 + r) (1 + x) / (1 + (1 + r) x), with r its rows per second over theirs, and x their rows
        in flight over the critical batch. It is less if training pauses: epochs end sooner.
        """
        now, alone = self._together(training), self._together(self.operate([number]))
        more = 1.0 + alone.speed / now.speed
        common = Load(more * now.speed, more * now.unseen, lost=more * now.lost)
        return common.rate(self._settings) / now.rate(self._settings)

    def _together(self, operations: Mapping[int, Operation]) -> Load:
        return sum((self._load(*each) for each in operations.items()), Load())

    def _load(self, number: int, operation: Operation) -> Load:
        return load(self._workers[number], operation, self._settings.stale_cost)

    def _rate_alone(self, unit: Sequence[int]) -> float:
        """The rate of a unit alone; more if it trains, so that it is rarely replaced."""
        rate = self.rate(self.operate(unit))
        return rate * MIN_REPLACEMENT_GAIN if self._trains(unit) else rate

    def _trains(self, unit: Sequence[int]) -> bool:
        return self._workers[unit[0]].trains


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
