import pytest

from hogbatch.coordinator.ledger import Ledger, RowRange
from tests.support.row_invariants import check_ledger


def test_rows_taken_back_are_the_next_to_be_taken():
    ledger = Ledger(100)
    ledger.take(1, 30)
    ledger.take(2, 30)
    ledger.take_back(1)
    assert ledger.todo[0].rows == (0, 30)
    assert ledger.remaining == 70
    assert ledger.take(3, 20) == (0, 20)
    assert ledger.take(4, 20) == (20, 30)  # a range is never joined with the next
    assert ledger.take(5, 20) == (60, 80)
    check_ledger(ledger)


@pytest.mark.parametrize(("rows", "rest"), [(0, (0, 30)), (20, (20, 30))])
def test_rows_of_a_lease_that_were_not_done_are_the_next_to_be_taken(rows, rest):
    ledger = Ledger(100)
    ledger.take(1, 30)
    assert ledger.acknowledge(1, rows) == (0, rows)
    check_ledger(ledger)
    assert ledger.acknowledged == rows
    assert ledger.take(2, 50) == rest
    assert ledger.take(3, 99) == (30, 100)
    check_ledger(ledger)


def damaged(damage):
    ledger = Ledger(100)
    ledger.take(1, 30)
    damage(ledger)
    return ledger


@pytest.mark.parametrize(
    "damage",
    [
        lambda ledger: ledger.next_part().todo.clear(),
        lambda ledger: ledger.held.clear(),
        lambda ledger: ledger.held.update({2: RowRange(0, 30)}),
        lambda ledger: ledger.next_part().todo.append(RowRange(100, 100)),
        lambda ledger: setattr(ledger, "acknowledged", 1),
    ],
)
def test_validation_sees_rows_that_are_lost_or_held_twice(damage):
    with pytest.raises(AssertionError):
        check_ledger(damaged(damage))


def test_row_ranges_keep_their_number_of_deaths():
    ledger = Ledger(100)
    ledger.take(1, 30)
    ledger.take_back(1, died=True)
    assert ledger.todo[0] == RowRange(0, 30, 1)
    assert ledger.next_part().deaths == 1
    ledger.take(2, 10)
    ledger.take_back(2, died=True)
    assert ledger.todo[0] == RowRange(0, 10, 2)
    ledger.take(3, 10)
    assert ledger.acknowledge(3, 4) == (0, 4)
    assert ledger.next_part().deaths == 2  # the rest of it
    ledger.take(4, 10)
    assert ledger.next_part().deaths == 1
    ledger.take(5, 99)
    assert ledger.next_part().deaths == 0
    assert ledger.remaining == 70
    check_ledger(ledger)
