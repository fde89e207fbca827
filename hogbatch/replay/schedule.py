"""The order in which the recorded reads and writes of the model happened.

Of a batch, only its begin and its end are recorded. Its stages are assumed to run between them, in
proportion to their work.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.telemetry.update_log import Kind, UpdateFile


class Moment(IntEnum):
    """Which time of a record a step belongs to. Of steps at the same time, ends come first."""

    END = 0
    BEGIN = 1
    STAGE = 2  # of an update; not a time of the record


# The times at which a record has an effect: reads happen when it begins, writes when it ends.
MOMENTS: Final = {
    Kind.UPDATE: (Moment.BEGIN, Moment.END),
    Kind.BUILD: (Moment.BEGIN, Moment.END),
    Kind.JOIN: (Moment.BEGIN,),
    Kind.PULL: (Moment.BEGIN,),
    Kind.TAKE: (Moment.BEGIN,),
    Kind.MERGE: (Moment.END,),
    Kind.FETCH: (Moment.BEGIN,),
    Kind.SHUFFLE: (Moment.END,),
    Kind.SNAPSHOT: (Moment.BEGIN,),
    Kind.ROLL_BACK: (Moment.END,),
    Kind.EVALUATION: (Moment.END,),
    Kind.SAMPLE: (Moment.BEGIN,),
}


class Step(NamedTuple):
    """One effect of one record."""

    at: int  # nanoseconds
    moment: Moment
    file: int  # its number in the list of files
    record: int  # its number in the file


class Schedule:
    """All steps of the records in `files`, in order of time.

    `stages` has the times of the stages of every batch, as fractions of its time.
    """

    def __init__(self, files: Sequence[UpdateFile], stages: Sequence[float] = ()) -> None:
        parts = [
            steps
            for number, file in enumerate(files)
            for steps in _file_steps(number, file, stages)
        ]
        steps = np.concatenate(parts) if parts else np.zeros((0, 4), np.int64)
        order = np.lexsort(steps.T[::-1])  # by time, then by moment, file and record
        self._steps: NDArray[np.int64] = steps[order]
        self._files = files

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[Step]:
        for at, moment, file, record in self._steps.tolist():
            yield Step(at, Moment(moment), file, record)

    @property
    def overlapping(self) -> bool:
        """Whether a batch begins before another one ends, or a GPU worker took part."""
        kinds, updates = self._kinds, self._kinds == Kind.UPDATE
        moments = self._steps[:, 1]
        change = updates * ((moments == Moment.BEGIN) * 1 - (moments == Moment.END))
        return bool((kinds == Kind.MERGE).any() or (change.size and np.cumsum(change).max() > 1))

    @property
    def updates(self) -> int:
        """The number of updates: batches of CPU threads, and merges."""
        written = self._steps[:, 1] == Moment.END
        return int((written & np.isin(self._kinds, [Kind.UPDATE, Kind.MERGE])).sum())

    @property
    def _kinds(self) -> NDArray[np.int64]:
        """The kind of each step."""
        kinds = np.zeros(len(self._steps), np.int64)
        for number, file in enumerate(self._files):
            own = self._steps[:, 2] == number
            kinds[own] = file.records["kind"][self._steps[own, 3]]
        return kinds


def _file_steps(
    number: int, file: UpdateFile, stages: Sequence[float]
) -> Iterator[NDArray[np.int64]]:
    """Steps int64[N, 4] of one file, in several parts."""
    for moment in (Moment.BEGIN, Moment.END):
        kinds = [kind for kind, moments in MOMENTS.items() if moment in moments]
        records = np.flatnonzero(np.isin(file.records["kind"], kinds))
        times = file.records["begin" if moment is Moment.BEGIN else "end"][records]
        yield _steps(times, moment, number, records)
    records = np.flatnonzero(file.records["kind"] == Kind.UPDATE)
    begin, end = file.records["begin"][records], file.records["end"][records]
    for fraction in stages:
        times = begin + ((end - begin) * fraction).astype(np.int64)
        yield _steps(np.minimum(times, end - 1), Moment.STAGE, number, records)


def _steps(
    times: NDArray[np.int64], moment: Moment, number: int, records: NDArray[np.int64]
) -> NDArray[np.int64]:
    same = np.ones(len(records), np.int64)
    return np.stack([times, int(moment) * same, number * same, records], axis=1)
