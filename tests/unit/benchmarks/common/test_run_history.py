import copy

import pytest

from benchmarks.common.run_history import Life, audit, check_summary


def lease(epoch, start, stop):
    return {"event": "lease", "epoch": epoch, "rows": [start, stop]}


def ended(epoch, rows=10):
    return {"event": "epoch", "epoch": epoch, "rows": rows}


def quarantined(epoch, start, stop):
    return {"event": "quarantined", "epoch": epoch, "rows": [start, stop]}


GOOD = [lease(0, 4, 10), lease(0, 0, 4), ended(0), lease(1, 0, 10), ended(1), lease(2, 3, 5)]


@pytest.mark.parametrize(
    ("events", "faults"),
    [
        (GOOD, []),
        ([lease(0, 0, 6), lease(0, 4, 10), ended(0)], ["rows (4, 6) were acknowledged twice"]),
        ([lease(0, 0, 6), lease(0, 5, 6)], ["rows (5, 6) were acknowledged twice"]),
        (
            [lease(0, 0, 3), lease(0, 4, 10), ended(0)],
            ["rows [(0, 3), (4, 10)] were done, of [(0, 10)]"],
        ),
    ],
)
def test_rows_done_twice_or_never_are_found(events, faults):
    assert audit([Life(events)], 10) == [f"life 0, epoch 0: {fault}" for fault in faults]


def test_an_epoch_of_too_few_rows_is_found():
    (fault,) = audit([Life([lease(0, 0, 9), ended(0, rows=9)])], 10)
    assert fault == "life 0, epoch 0 had 9 rows instead of 10"


def test_an_epoch_that_goes_on_after_its_end_or_is_left_out_is_found():
    faults = audit([Life([lease(0, 0, 10), ended(0), lease(0, 2, 3), ended(2)])], 10)
    assert "life 0, lease of epoch 0 in epoch 1" in faults
    assert "life 0, epoch of epoch 2 in epoch 1" in faults


def test_a_life_begins_where_its_checkpoint_was():
    first = Life([lease(0, 0, 10), ended(0), lease(1, 0, 8)])
    resumed = Life([lease(1, 5, 8), lease(1, 8, 10), ended(1)], rows=15, epoch=1, todo=[(5, 10)])
    assert audit([first, resumed], 10) == []


def test_a_life_says_itself_what_it_has_resumed():
    resumed = {"event": "resumed", "rows": 15, "epoch": 1, "todo": [[5, 10, 0]]}
    life = Life.of([resumed, lease(1, 5, 8)])
    assert (life.rows, life.epoch, life.todo) == (15, 1, [(5, 10)])
    assert life.rows_at_the_end == 18
    assert Life.of(GOOD) == Life(GOOD)


def test_rows_that_a_resumed_run_forgets_or_repeats_are_found():
    for rows in (lease(1, 6, 10), lease(1, 4, 10)):
        resumed = Life([rows, ended(1)], epoch=1, todo=[(5, 10)])
        (fault,) = audit([resumed], 10)
        assert fault.startswith("life 0, epoch 1: rows ") and fault.endswith("of [(5, 10)]")


def test_quarantined_rows_count_as_done_and_are_left_out_afterwards():
    events = [lease(0, 0, 4), quarantined(0, 4, 6), lease(0, 6, 10), ended(0)]
    assert audit([Life([*events, lease(1, 0, 8), ended(1, rows=8)])], 10) == []
    assert audit([Life([*events, lease(1, 0, 7), ended(1, rows=7)])], 10) != []


def test_a_summary_is_held_against_the_events():
    events = [lease(1, 5, 10), {"event": "evaluation", "test_loss": 0.5}]
    good = {
        "rows": 20,
        "workers": [{"rows": 12}, {"rows": 8}],
        "history": [{"test_loss": 0.7}, {"test_loss": 0.5}],
    }
    life = Life(events, rows=15, epoch=1)
    assert check_summary(good, life) == []
    for key, value in (("rows", 19), ("workers", []), ("history", [{"test_loss": 0.7}])):
        bad = copy.deepcopy(good) | {key: value}
        assert check_summary(bad, life), key
