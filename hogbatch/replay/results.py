"""What a replay reports: updates, evaluations, and when they were."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Update(NamedTuple):
    """One update, after it was written to the model."""

    number: int  # from 1, in the order of writing
    seconds: float  # of training, when it was written
    worker: str
    thread: int
    epoch: int
    start: int  # of its rows in the order of the epoch
    rows: int
    batch_size: int
    learning_rate: float
    staleness: int  # updates written since it read the model
    loss: float  # sum over its rows, before the update
    skipped: int  # rows without a finite gradient
    rows_of_data: NDArray[np.int64]  # [rows]: their numbers in the training set


class Evaluated(NamedTuple):
    """An evaluation, as it was recorded and as it was replayed. Losses are means per row."""

    seconds: float  # of training
    updates: int  # so far
    train_loss: float | None
    test_loss: float | None
    test_values: Mapping[str, float]
    replayed_train_loss: float | None
    replayed_test_loss: float | None
    replayed_test_values: Mapping[str, float]


class TrainingTime:
    """Converts times of the record, in nanoseconds, to training seconds, which omit evaluations."""

    def __init__(self) -> None:
        self._seconds = 0.0  # at the last evaluation
        self._origin: int | None = None  # when training began or continued after it

    def trains(self, at: int) -> None:
        """Note that a batch begins at time `at`."""
        if self._origin is None:
            self._origin = at

    def evaluated(self, seconds: float) -> None:
        """Note that the model was evaluated after `seconds` training seconds."""
        self._seconds, self._origin = seconds, None

    def at(self, at: int) -> float:
        """Training seconds at time `at`."""
        since = 0 if self._origin is None else at - self._origin
        return self._seconds + since / 1e9
