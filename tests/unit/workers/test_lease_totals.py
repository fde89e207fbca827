import threading

import numpy as np

from hogbatch.kernels.contract import SKIPPED_ROW, TOTALS
from hogbatch.wire.messages import Lease
from hogbatch.workers.cpu import LeaseTotals

WORK = Lease(1, "train", 0, 0, 10, 1, 0.1, 0)


def test_totals_and_seconds_are_added_up_until_the_last_range():
    progress, counts = LeaseTotals(WORK, 3), np.arange(1.0, TOTALS + 1)
    assert not progress.add(counts, 0.5)
    assert not progress.add(2 * counts, 0.0)
    assert progress.add(np.zeros(TOTALS), 0.25)
    expected = 3 * counts
    expected[SKIPPED_ROW] = 2 * counts[SKIPPED_ROW]  # the last skipped row
    assert progress.totals.tolist() == expected.tolist() and progress.seconds == 0.75
    assert not LeaseTotals(WORK, 1).totals.any()


def test_one_of_many_threads_that_finish_together_is_the_last():
    threads = 8
    progress, start, last = LeaseTotals(WORK, threads * 200), threading.Barrier(threads), []

    def finish():
        start.wait()
        last.extend(progress.add(np.ones(TOTALS), 1.0) for _ in range(200))

    crew = [threading.Thread(target=finish) for _ in range(threads)]
    for each in crew:
        each.start()
    for each in crew:
        each.join()
    assert last.count(True) == 1 and progress.totals[0] == threads * 200
