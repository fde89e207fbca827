"""Invariants of the rows of a coordinator, which hold after each event."""

from itertools import pairwise

from hogbatch.coordinator.leases import LEASES_IN_FLIGHT


def check_rows(state):
    """Check that what the ledgers of a coordinator hold is what its workers hold."""
    workers, leases = state.roster.attached.values(), state.leases
    for ledger, task in ((state.epochs.rows, "train"), (leases.evaluated, leases.evaluated_set)):
        check_ledger(ledger)
        held = [held.lease for worker in workers for held in worker.leases.values()]
        numbers = [lease.number for lease in held if lease.task == task]
        assert sorted(numbers) == sorted(ledger.held), (numbers, ledger.held)
    assert all(len(worker.leases) <= LEASES_IN_FLIGHT for worker in workers)


def check_ledger(ledger):
    """Check that every row is in one place, and that no range is empty."""
    ranges = sorted(ledger.unfinished)
    assert ledger.remaining == sum(queue.remaining for queue in ledger._queues)
    for queue in ledger._queues:
        assert queue.remaining == sum(each.stop - each.start for each in queue.todo), queue
        assert queue.returned <= len(queue.todo), queue
    assert all(each.start < each.stop for each in ranges), ranges
    for left, right in pairwise(ranges):
        assert left.stop <= right.start, ranges
    assert sum(each.stop - each.start for each in ranges) + ledger.acknowledged == ledger.rows
    if ledger.divided:
        _check_groups(ledger)


def _check_groups(ledger):
    for each in ledger.unfinished:
        assert ledger._part_of(each.start) == ledger._part_of(each.stop - 1), each
    for group in ledger._group_of:
        queues = [ledger._queues[n] for n, each in enumerate(ledger._group_of) if each is group]
        assert group.remaining == sum(queue.remaining for queue in queues), group
        assert set(group.parts) == {queue.number for queue in queues if queue.todo}, group
        assert set(group.returned) == {queue.number for queue in queues if queue.returned}
    for parts in ledger._reaches:
        held = (ledger._queues[part].remaining for part in parts if part < len(ledger._queues))
        assert ledger.left(parts) == sum(held), parts
