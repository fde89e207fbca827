import threading

import numpy as np
import pytest

from hogbatch.kernels.contract import SKIPPED_ROW, TOTALS
from hogbatch.wire.messages import Lease
from hogbatch.workers.cpu import LeaseTotals

WORK = Lease(1, "train", 0, 0, 10, 1, 0.1, 0)


def test_totals_and_seconds_are_added_up_until_the_last_range():
    progress = LeaseTotals(WORK, 2)
    assert not progress.add(np.arange(TOTALS, dtype=float), 0.5)
    assert progress.add(np.ones(TOTALS), 0.25)
    expected = np.arange(TOTALS, dtype=float) + 1
    expected[SKIPPED_ROW] = SKIPPED_ROW
    assert progress.totals.tolist() == expected.tolist() and progress.seconds == 0.75
    assert not LeaseTotals(WORK, 1).totals.any()


@pytest.mark.parametrize("skipped_rows", [(0, 0), (0, 8), (8, 0), (3, 8), (8, 3)])
def test_the_skipped_row_of_a_lease_is_that_of_any_range(skipped_rows):
    progress = LeaseTotals(WORK, 2)
    for skipped_row in skipped_rows:
        part = np.zeros(TOTALS)
        part[SKIPPED_ROW] = skipped_row
        progress.add(part, 0.5)
        assert part[SKIPPED_ROW] == skipped_row
    assert progress.totals[SKIPPED_ROW] == max(skipped_rows)


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
