"""The thread that merges a replica's change while the device goes on training.

It follows the device's work by marks, looks each change through before it reaches the shared
parameters, and reports a lease once all of it is in them.
"""

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.errors import HogbatchError
from hogbatch.kernels.contract import ROWS, SKIPPED, TOTALS, UPDATES, add_totals
from hogbatch.store.model import SharedModel
from hogbatch.store.scan import first_not_finite
from hogbatch.store.staleness import Damping
from hogbatch.wire.messages import Work
from workers.replica import Replica
from workers.report import MergeReport, report
from workers.session import Post

MAX_REFUSED = 3  # merges in a row that are not finite; then the rows are for another worker


@dataclass(slots=True)
class Tally:
    """What has come of one lease so far."""

    work: Work
    began: float
    rows: int = 0  # of `work` from its start that are to be done; fewer where memory ran out
    too_large: int = 0  # rows of a batch that there was no memory for
    refused: int = 0
    stale: int = 0  # updates of others, summed over merges
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(TOTALS))


class Interval(NamedTuple):
    """The batches between two merges: rows [start, stop) of the epoch order."""

    tally: Tally
    start: int
    stop: int
    last: bool  # of its lease

    @property
    def rows(self) -> int:
        """How many."""
        return self.stop - self.start


class _Taken(NamedTuple):
    """An interval on its way to the shared parameters."""

    interval: Interval
    mark: Any = None  # of the device: when its change is complete
    based_on: int = 0  # updates of others when its replica was pulled
    given_up: bool = False  # nothing was taken, its rows count as skipped


class Exchange:
    """Merges one taken interval at a time; the training thread submits and waits."""

    def __init__(
        self, replica: Replica, model: SharedModel, fence: NDArray[np.int64], damping: Damping
    ) -> None:
        self._replica, self._model, self._fence = replica, model, fence
        self._damping = damping
        self._post: Post | None = None
        self._jobs: queue.SimpleQueue[_Taken] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[bool | BaseException] = queue.SimpleQueue()
        self._under_way = False
        self._merges = 0  # this worker's own
        self._refused = 0  # in a row
        self._reported_at = 0.0
        self._fetched = self._based_on = 0  # updates of others: when fetched, and in the replica

    def start(self, post: Post) -> None:
        """Begin to serve; reports go to `post`."""
        self._post = post
        threading.Thread(target=self._serve, daemon=True).start()

    # The training thread's ------------------------------------------------------------------

    def submit(self, interval: Interval, mark: Any) -> None:
        """Merge what the replica has taken, `mark` being when it is complete."""
        taken = _Taken(interval, mark, self._based_on)
        self._based_on = self._fetched  # read first: the exchange thread will soon set it
        self._jobs.put(taken)
        self._under_way = True

    def give_up(self, interval: Interval) -> None:
        """Count the rows of an interval that started from numbers that were not finite."""
        self._jobs.put(_Taken(interval, given_up=True))
        self._under_way = True

    def wait(self) -> bool:
        """Return when nothing is under way; False if the last change was refused.

        What the exchange thread failed with is raised here.
        """
        if not self._under_way:
            return True
        outcome = self._done.get()
        self._under_way = False
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def pulling(self) -> None:
        """The training thread is about to pull the replica."""
        self._fetched = self._based_on = self._others()

    # The exchange thread's ------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self._replica.device.enter()
            while True:
                self._done.put(self._exchange(self._jobs.get()))
        except BaseException as error:
            self._done.put(error)

    def _exchange(self, taken: _Taken) -> bool:
        interval, tally = taken.interval, taken.interval.tally
        good = taken.given_up or self._is_finite(taken.mark)
        # Looked at last: the device may have taken long, and the rows be with another by now.
        if self._fence[0] == tally.work.fence:
            if good and not taken.given_up:
                self._merge(taken)
            else:
                tally.refused += not good
                tally.totals[[ROWS, SKIPPED]] += interval.rows
        if not taken.given_up:
            others = self._others()  # at least those are in what is fetched
            self._replica.fetch()
            self._fetched = others
        if interval.last:
            self._report(tally)
        return good

    def _is_finite(self, mark: Any) -> bool:
        """Wait until the change is complete; whether it may join the shared parameters."""
        finite = np.zeros(1, np.float32)
        self._replica.device.follow(mark)
        self._replica.device.to_host(self._replica.finite, finite)
        if not finite[0]:
            self._refuse()
        return bool(finite[0])

    def _merge(self, taken: _Taken) -> None:
        """Let the change join the shared parameters."""
        tally, totals = taken.interval.tally, np.zeros(TOTALS)
        self._replica.device.to_host(self._replica.taken_totals, totals)
        staleness = max(0, self._others() - taken.based_on)
        self._replica.merge(self._damping.weight(staleness))
        self._model.merges[0] += 1  # racy like the weights; staleness is counted by it
        self._merges += 1
        self._refused = 0
        totals[[ROWS, UPDATES]] = taken.interval.rows, 1
        add_totals(totals, tally.totals)
        tally.stale += staleness

    def _refuse(self) -> None:
        """Count a change that is not finite, unless that is the fault of what was pulled."""
        if first_not_finite(self._model.params) is not None:
            return  # the coordinator will see it too, and put a good model in its place
        self._refused += 1
        if self._refused >= MAX_REFUSED:
            raise HogbatchError(f"{self._refused} merges in a row were not finite")

    def _others(self) -> int:
        """Updates of the shared parameters by everyone but this worker."""
        return self._model.updates - self._merges

    def _report(self, tally: Tally) -> None:
        now = time.perf_counter()
        seconds = now - max(tally.began, self._reported_at)
        self._reported_at = now
        assert self._post is not None
        merges = max(1, int(tally.totals[UPDATES]))
        merge = MergeReport(tally.rows, tally.stale / merges, tally.refused, tally.too_large)
        self._post(report(tally.work, tally.totals, seconds, merge))
