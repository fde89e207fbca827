"""The number of batches after which a GPU worker merges, computed from measured times.

The first intervals use times that are measured before training, on an idle machine. During
training, every interval is measured, and the next leases use these times, which include the load.
"""

from collections import deque
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from hogbatch.store.merge import batches_between_merges

WINDOW = 5  # observations whose median is used: two outliers have no effect
MAX_FACTOR = 4.0  # by which an observation may differ from the estimate, so K changes in steps
RESOLUTION = 1e-6  # seconds; about the resolution of event times
ALONE = 16  # times as many batches if no other worker trains: a merge then has only a cost
MANY_BATCHES = 8  # in an interval: an incomplete last one hardly changes the mean time


class MergeCost(NamedTuple):
    """The cost of one merge, in seconds."""

    blocking: float  # during which the device merges instead of training
    background: float  # of the exchange thread, while training continues


class IntervalTimes(NamedTuple):
    """The times of one interval of `rows` rows, in seconds."""

    batch_size: int
    rows: int
    training: float  # of the device, for all batches
    cost: MergeCost  # of the merge at its end
    alone: bool = False  # no other worker has updated the shared parameters in the meantime

    @property
    def batches(self) -> int:
        """Number of batches, the last of which may be incomplete."""
        return -(-self.rows // self.batch_size)

    @property
    def batch_seconds(self) -> float | None:
        """Seconds of one batch; None if a large part of the batches was incomplete."""
        if self.rows % self.batch_size and self.batches < MANY_BATCHES:
            return None
        return self.training / self.batches


class _Estimate:
    """The median of the last observations, each limited to MAX_FACTOR times the median so far."""

    def __init__(self, seconds: float) -> None:
        self._recent = deque([max(seconds, RESOLUTION)] * WINDOW, WINDOW)

    @property
    def seconds(self) -> float:
        return median(self._recent)

    def observe(self, seconds: float) -> None:
        least, most = self.seconds / MAX_FACTOR, self.seconds * MAX_FACTOR
        self._recent.append(max(min(max(seconds, least), most), RESOLUTION))


class _SizeEstimates(NamedTuple):
    """Estimates for one batch size."""

    batch: _Estimate
    blocking: _Estimate
    background: _Estimate


class MergeInterval:
    """The number of batches between two merges, for each batch size.

    It is `chosen`, unless that is 0. Otherwise it is computed from the observed intervals. Until
    there are any, it is computed from `cost` and `batch_seconds`, a function of the batch size,
    which were measured before training.
    """

    def __init__(self, chosen: int, batch_seconds: Callable[[int], float], cost: MergeCost) -> None:
        self._chosen = chosen
        self._batch_seconds = batch_seconds
        self.cost = cost  # of a merge, with the batch size that was observed last
        self._sizes: dict[int, _SizeEstimates] = {}
        self._alone = False

    def observe(self, times: IntervalTimes) -> None:
        self._alone = times.alone
        estimates = self._estimates(times.batch_size)
        if times.batch_seconds is not None:
            estimates.batch.observe(times.batch_seconds)
        estimates.blocking.observe(times.cost.blocking)
        estimates.background.observe(times.cost.background)
        self.cost = MergeCost(estimates.blocking.seconds, estimates.background.seconds)

    def batches(self, batch_size: int, wanted: int = 0) -> int:
        """Number of batches of `batch_size` rows between two merges.

        `wanted` is the number that the batch policy wants; 0: none.
        """
        if every := self._chosen or wanted:
            return every
        seconds = (estimate.seconds for estimate in self._estimates(batch_size))
        return batches_between_merges(*seconds) * (ALONE if self._alone else 1)

    def _estimates(self, batch_size: int) -> _SizeEstimates:
        """The estimates of a batch size; those of a new size start from the last costs."""
        if batch_size not in self._sizes:
            first = self._batch_seconds(batch_size), *self.cost
            self._sizes[batch_size] = _SizeEstimates(*map(_Estimate, first))
        return self._sizes[batch_size]
