import pytest

from hogbatch.coordinator.commands import Quarantine, Record, Shuffle
from hogbatch.coordinator.epochs import MAX_DEATHS, Epochs
from hogbatch.coordinator.ledger import RowRange
from hogbatch.events.event import EpochEnded, Quarantined
from tests.support.row_invariants import check_ledger


@pytest.fixture
def epochs():
    made = Epochs(100)
    assert made.begin() == [Shuffle(0)]
    made.order_ready(0, 0)
    return made


def kill(epochs, rows, times=MAX_DEATHS):
    """Let workers die on the next `rows` rows; return the commands at the last death."""
    for lease in range(times):
        epochs.rows.take(lease, rows)
        commands = epochs.take_back(lease, died=True)
    return commands


def test_quarantined_rows_are_excluded_from_this_epoch_and_all_later_ones(epochs):
    epochs.prepare_next()
    epochs.order_ready(1, 0)
    assert kill(epochs, 10, MAX_DEATHS - 1) == []
    quarantine, record = kill(epochs, 10, 1)
    assert quarantine == Quarantine(0, 0, 10)
    assert record == Record(Quarantined(0, [0, 10], 3))
    assert epochs.quarantined == 10 and epochs.rows.acknowledged == 10
    epochs.rows.take(9, 90)
    epochs.rows.acknowledge(9, 90)
    ended, again = epochs.end()
    assert ended == Record(EpochEnded(0, 100))
    assert again == Shuffle(1, 10)  # the order that was ready has them in their old places
    assert epochs.rows.rows == 90
    assert not epochs.ready
    epochs.order_ready(1, 0)  # the first one, late
    assert not epochs.ready
    epochs.order_ready(1, 10)
    assert epochs.ready
    assert epochs.prepare_next() == [Shuffle(2, 10)]


def test_a_resumed_epoch_has_the_same_order_as_before():
    epochs = Epochs(100)
    epochs.resume(4, quarantined=30, rows=80, todo=[RowRange(10, 20, 2), RowRange(40, 80)])
    assert epochs.begin() == [Shuffle(4, 20)]  # 10 of the 30 were found in this epoch
    epochs.order_ready(4, 20)
    assert epochs.ready
    assert (epochs.rows.acknowledged, epochs.rows.remaining) == (30, 50)
    assert epochs.rows.next_part().deaths == 2
    assert epochs.prepare_next() == [Shuffle(5, 30)]


def test_with_several_servers_quarantined_rows_are_excluded_from_this_epoch_only():
    epochs = Epochs(100, (40, 60), all_rows=True)
    epochs.begin()
    epochs.order_ready(0, 0)
    for lease in range(MAX_DEATHS):
        epochs.rows.take(lease, 10, (1,))
        commands = epochs.take_back(lease, died=True)
    assert Quarantine(0, 40, 50) in commands
    check_ledger(epochs.rows)
    assert epochs.prepare_next() == [Shuffle(1)]
    for lease, part in ((8, 0), (9, 1)):
        start, stop = epochs.rows.take(lease, 99, (part,))
        epochs.rows.acknowledge(lease, stop - start)
    epochs.order_ready(1, 0)
    assert epochs.rows.finished
    assert epochs.end() == [Record(EpochEnded(0, 100))]
    assert epochs.ready and epochs.rows.rows == 100
    assert epochs.rows.todo == [RowRange(0, 40), RowRange(40, 100)]


def test_a_run_of_one_server_that_is_resumed_on_several_has_all_rows_again():
    epochs = Epochs(100, (40, 60), all_rows=True)
    epochs.resume(4, quarantined=30, rows=80, todo=[RowRange(10, 20, 2), RowRange(30, 80)])
    assert epochs.begin() == [Shuffle(4)]
    assert epochs.rows.rows == 100 and epochs.rows.acknowledged == 20
    left = [RowRange(10, 20, 2), RowRange(30, 40), RowRange(40, 80), RowRange(80, 100)]
    assert epochs.rows.todo == left
    assert epochs.prepare_next() == [Shuffle(5)]
