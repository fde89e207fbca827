"""Comparison of batch times in training with those measured before it."""

from statistics import median
from typing import NamedTuple

from hogbatch.workers.compute.device_profile import Profile
from hogbatch.workers.compute.merge_interval import IntervalTimes

MAX_DIFFERENCE = 0.25  # of the measured time
ENOUGH_SECONDS, ENOUGH_BATCHES = 1.0, 50  # of one batch size; either is enough for a comparison
ENOUGH_INTERVALS = 5  # the median of which is compared: the first two contain the capture of steps


class SpeedDifference(NamedTuple):
    """Seconds of a batch of `rows` rows, in training and as measured before."""

    rows: int
    training: float
    measured: float


class SpeedCheck:
    """Compares the times of training with `profile`, at the batch sizes that were measured.

    Each comparison starts from new observations, so a device that becomes slower is noticed later.
    """

    def __init__(self, profile: Profile) -> None:
        self._measured = dict(profile)
        self._observed: dict[int, list[IntervalTimes]] = {}

    def observe(self, times: IntervalTimes) -> SpeedDifference | None:
        """Add the times of an interval.

        Return the difference if there are enough observations and it exceeds MAX_DIFFERENCE, else
        None.
        """
        rows = times.batch_size
        if rows not in self._measured or times.batch_seconds is None:
            return None
        observed = self._observed.setdefault(rows, [])
        observed.append(times)
        if not _enough(observed):
            return None
        del self._observed[rows]
        training, measured = median(map(_batch_seconds, observed)), self._measured[rows]
        if abs(training - measured) <= MAX_DIFFERENCE * measured:
            return None
        return SpeedDifference(rows, training, measured)


def _enough(observed: list[IntervalTimes]) -> bool:
    seconds = sum(times.training for times in observed)
    batches = sum(times.batches for times in observed)
    enough = seconds >= ENOUGH_SECONDS or batches >= ENOUGH_BATCHES
    return enough and len(observed) >= ENOUGH_INTERVALS


def _batch_seconds(times: IntervalTimes) -> float:
    return times.training / times.batches
