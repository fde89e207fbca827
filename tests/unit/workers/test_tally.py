import threading

import numpy as np
import pytest

from hogbatch.kernels.contract import SKIPPED_ROW, TOTALS
from hogbatch.wire.messages import Work
from workers.cpu import Tally

WORK = Work(1, "train", 0, 0, 10, 1, 0.1, 0)


def test_only_the_last_part_completes_a_tally():
    tally = Tally(WORK, 3)
    assert [tally.add(np.ones(TOTALS), 0.5) for _ in range(3)] == [False, False, True]


def test_a_tally_adds_totals_and_seconds():
    tally = Tally(WORK, 2)
    tally.add(np.arange(TOTALS, dtype=float), 0.5)
    tally.add(np.ones(TOTALS), 0.25)
    expected = np.arange(TOTALS, dtype=float) + 1
    expected[SKIPPED_ROW] = SKIPPED_ROW
    assert tally.totals.tolist() == expected.tolist() and tally.seconds == 0.75


@pytest.mark.parametrize("skipped_rows", [(0, 0), (0, 8), (8, 0), (3, 8), (8, 3)])
def test_the_culprit_of_a_tally_is_that_of_any_part(skipped_rows):
    tally = Tally(WORK, 2)
    for skipped_row in skipped_rows:
        part = np.zeros(TOTALS)
        part[SKIPPED_ROW] = skipped_row
        tally.add(part, 0.5)
        assert part[SKIPPED_ROW] == skipped_row
    assert tally.totals[SKIPPED_ROW] == max(skipped_rows)


def test_two_leases_do_not_share_their_totals():
    first, second = Tally(WORK, 1), Tally(WORK, 1)
    first.add(np.ones(TOTALS), 1.0)
    assert not second.totals.any()


def test_one_of_many_threads_that_finish_together_is_the_last():
    threads = 8
    tally, start, last = Tally(WORK, threads * 200), threading.Barrier(threads), []

    def finish():
        start.wait()
        last.extend(tally.add(np.ones(TOTALS), 1.0) for _ in range(200))

    crew = [threading.Thread(target=finish) for _ in range(threads)]
    for each in crew:
        each.start()
    for each in crew:
        each.join()
    assert last.count(True) == 1
    expected = np.full(TOTALS, threads * 200)
    expected[SKIPPED_ROW] = 1
    assert tally.totals.tolist() == expected.tolist()
