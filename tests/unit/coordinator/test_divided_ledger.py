"""Rows that are divided among workers: each of them gets rows of its parts only."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, strategies as st

from hogbatch.coordinator.ledger import Ledger, RowRange
from tests.support.row_invariants import check_ledger

PARTS = (30, 0, 50, 20)  # rows; positions 0..30, none, 30..80 and 80..100


def test_parts_beyond_those_of_a_set_have_no_rows():
    assert Ledger(100, PARTS).left((3, 4, 100)) == 20


def test_without_parts_the_parts_of_workers_mean_nothing():
    ledger = Ledger(100)
    assert ledger.left((7,)) == 100
    assert ledger.take(1, 60, (7,)) == (0, 60)
    assert ledger.take(2, 60, ()) == (60, 100)


def test_parts_have_all_rows():
    with pytest.raises(AssertionError, match="all rows"):
        Ledger(99, PARTS)


def test_validation_sees_ranges_of_several_parts():
    ledger = Ledger(100, PARTS)
    ledger.take(1, 30, (0,))
    ledger.take(2, 10, (2,))
    ledger.held = {1: RowRange(0, 35), 2: RowRange(35, 40)}
    with pytest.raises(AssertionError):
        check_ledger(ledger)


def left_by_part(ledger, parts):
    """Rows left by part, from the ranges alone."""
    bounds = list(pairwise([0, *accumulate(parts)]))
    return [
        sum(stop - start for start, stop, _ in ledger.todo if low <= start < high)
        for low, high in bounds
    ]


def groups_of(parts, sets):
    """`parts`, those together that are in the same of the `sets`."""
    alike = {}
    for part in parts:
        alike.setdefault(tuple(part in each for each in sorted(sets)), []).append(part)
    return [tuple(each) for each in alike.values()]


@given(
    parts=st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any),
    held=st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=4),
    acts=st.lists(
        st.tuples(
            st.sampled_from(["take"] * 4 + ["done", "return", "unmerged", "merge", "discard"]),
            st.integers(0, 1000),
        ),
        max_size=120,
    ),
)
def test_every_row_is_in_one_place_and_the_rule_holds(parts, held, acts):
    ledger = Ledger(sum(parts), tuple(parts))
    sets = [tuple(sorted(part for part in each if part < len(parts))) for each in held]
    done, asked = [], set()
    for lease, (act, number) in enumerate(acts):
        rows, own = left_by_part(ledger, parts), sets[number % len(sets)]
        leases = list(ledger.held)
        asked.add(own)
        assert ledger.left(own) == sum(rows[part] for part in own)
        if act == "take":
            found = ledger.next_part(own)
            assert (found is None) == (ledger.left(own) == 0)
            if found is None:
                continue
            groups = groups_of(own, asked)
            returned = [each for each in groups if any(ledger._queues[n].returned for n in each)]
            size = {each: sum(rows[part] for part in each) for each in groups}
            (chosen,) = (each for each in groups if found.number in each)
            assert size[chosen] == max(size[each] for each in returned or groups)
            assert not returned or ledger._queues[found.number].returned
            start, stop = ledger.take(lease, 1 + number % 40, own)
            assert sum(parts[: found.number]) <= start < stop <= sum(parts[: found.number + 1])
        elif act == "merge":
            done += [each.rows for each in ledger.unmerged.values()]
            ledger.merge(list(ledger.unmerged))
        elif act == "discard":
            ledger.discard(list(ledger.unmerged)[: number % 3])
        elif leases:
            taken = leases[number % len(leases)]
            start, stop, _ = ledger.held[taken]
            if act == "done":
                done.append(ledger.acknowledge(taken, number % (stop - start + 1)))
            elif act == "unmerged":
                ledger.keep_unmerged(taken, number % (stop - start + 1))
            else:
                ledger.take_back(taken)
        check_ledger(ledger)
    again = Ledger.resumed(ledger.rows, ledger.unfinished, tuple(parts))
    check_ledger(again)
    rest = [each.rows for each in again.todo]
    covered = sorted(row for start, stop in done + rest for row in range(start, stop))
    assert covered == list(range(sum(parts)))
