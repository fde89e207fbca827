import copy

import pytest

from benchmarks.common.run_history import Life, audit, check_summary
from hogbatch.events.event import EpochEnded, Evaluation, LeaseDone, Quarantined, Resumed


def lease(epoch, start, stop):
    return LeaseDone(0.0, epoch, "cpu-0", 1, 1, rows=[start, stop])


def ended(epoch, rows=10):
    return EpochEnded(epoch, rows)


def quarantined(epoch, start, stop):
    return Quarantined(epoch, [start, stop], 3)


GOOD = [lease(0, 4, 10), lease(0, 0, 4), ended(0), lease(1, 0, 10), ended(1), lease(2, 3, 5)]


@pytest.mark.parametrize(
    ("events", "faults"),
    [
        (GOOD, []),
        ([lease(0, 0, 6), lease(0, 4, 10), ended(0)], ["rows (4, 6) were acknowledged twice"]),
        ([lease(0, 0, 6), lease(0, 5, 6)], ["rows (5, 6) were acknowledged twice"]),
        ([lease(0, 0, 3), lease(0, 4, 10), ended(0)], ["rows [(0, 3), (4, 10)] were done"]),
        ([lease(0, 0, 9), ended(0, rows=9)], ["epoch 0 had 9 rows instead of 10"]),
        (
            [lease(0, 0, 10), ended(0), lease(0, 9, 10), lease(1, 0, 10), ended(1)],
            ["lease of epoch 0 in epoch 1", "rows (9, 10) were acknowledged twice"],
        ),
        ([lease(1, 0, 10), ended(1)], ["lease of epoch 1 in epoch 0", "epoch of epoch 1"]),
    ],
)
def test_rows_done_twice_or_never_are_found(events, faults):
    found = audit([Life(events)], 10)
    assert all(fault in each for fault, each in zip(faults, found, strict=True))


def test_a_resumed_run_trains_on_the_remaining_rows_of_its_checkpoint():
    first = Life([lease(0, 0, 10), ended(0), lease(1, 0, 8)])
    event = Resumed("c/1", 1, [[5, 10]], 15, 1.0)
    resumed = Life.of([event, lease(1, 5, 8), lease(1, 8, 10), ended(1)])
    assert resumed.rows_at_the_end == 20
    assert audit([first, resumed], 10) == []
    for wrong in (lease(1, 6, 10), lease(1, 4, 10)):
        (fault,) = audit([first, Life.of([event, wrong, ended(1)])], 10)
        assert fault.startswith("life 1, epoch 1: rows ") and fault.endswith("of [(5, 10)]")


def test_quarantined_rows_count_as_done_and_are_left_out_afterwards():
    events = [lease(0, 0, 4), quarantined(0, 4, 6), lease(0, 6, 10), ended(0)]
    assert audit([Life([*events, lease(1, 0, 8), ended(1, rows=8)])], 10) == []
    assert audit([Life([*events, lease(1, 0, 7), ended(1, rows=7)])], 10) != []


def test_a_summary_is_held_against_the_events():
    events = [lease(1, 5, 10), Evaluation(1.0, 1.5, 20, None, 0.5)]
    good = {
        "rows": 20,
        "workers": [{"rows": 12}, {"rows": 8}],
        "history": [{"validation_loss": 0.7}, {"validation_loss": 0.5}],
    }
    life = Life(events, rows=15, epoch=1)
    assert check_summary(good, life) == []
    for key, value in (("rows", 19), ("workers", []), ("history", [{"validation_loss": 0.7}])):
        bad = copy.deepcopy(good) | {key: value}
        assert check_summary(bad, life), key
