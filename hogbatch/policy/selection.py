"""Selects the workers that learn fastest together, by `hogbatch.policy.progress`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hogbatch.policy.base import Operation, PolicySettings, WorkerView
from hogbatch.policy.progress import Load, best_operation, load

# Predicted, by which a worker must speed up others to train with them. Where it was less, runs were
# slower about as often as faster.
MIN_GAIN: Final = 1.1
MIN_RETURN_GAIN: Final = 1.05  # the factor by which that of a parked worker must be higher
MIN_REPLACEMENT_GAIN: Final = 1.3  # or it must be faster by this factor than the one it replaces
SWEEPS: Final = 2  # over the workers; more would hardly change their operations

Operations = dict[int, Operation]  # of workers, by their index


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
        return self._together(operations).rate(self._settings.critical_batch)

    def bound(self, training: Operations, number: int) -> float:
        """Return the factor by which the worker `number` could speed up those that train, at most.

        That is with common batches, to which each adds rows in proportion to its speed: then it is
        (1 + r) (1 + x) / (1 + (1 + r) x), with r its rows per second over theirs, and x their rows
        in flight over the critical batch.
        """
        now, alone = self._together(training), self._together(self.operate([number]))
        more, critical = 1.0 + alone.speed / now.speed, self._settings.critical_batch
        return Load(more * now.speed, more * now.unseen).rate(critical) / now.rate(critical)

    def _together(self, operations: Mapping[int, Operation]) -> Load:
        return sum((self._load(*each) for each in operations.items()), Load())

    def _load(self, number: int, operation: Operation) -> Load:
        pauses, stale_cost = self._settings.rows_between_pauses, self._settings.stale_cost
        return load(self._workers[number], operation, pauses, stale_cost)

    def _rate_alone(self, unit: Sequence[int]) -> float:
        """The rate of a unit alone; more if it trains, so that it is rarely replaced."""
        rate = self.rate(self.operate(unit))
        return rate * MIN_REPLACEMENT_GAIN if self._trains(unit) else rate

    def _trains(self, unit: Sequence[int]) -> bool:
        return self._workers[unit[0]].trains
