"""The leases that a server was given, and how far its workers have done them."""

from hogbatch.cluster.supply import Supply
from hogbatch.wire.messages import Done, Lease


def lease(number, start, stop):
    return Lease(number, "train", 0, start, stop, 10, 0.1, fence=1)


def done(rows):
    sums = {"updates": 2, "loss": 3.0, "metric_sums": (1.0,), "active": 4.0}
    return Done(0, rows, seconds=1.0, skipped=0, **sums)


def test_a_lease_is_done_with_its_last_row_and_the_next_one_begins_then():
    supply = Supply()
    supply.add(lease(7, 0, 30), now=10.0)
    supply.add(lease(8, 30, 60), now=11.0)
    assert supply.credit("train", 0, done(10), 12.0) == []
    (first,) = supply.exclude(10, 30, 15.0)
    assert (first.lease, first.rows, first.skipped, first.seconds) == (7, 30, 20, 5.0)
    assert (first.updates, first.loss, first.active, first.metric_sums[0]) == (2, 3.0, 4.0, 1.0)
    (second,) = supply.credit("train", 30, done(30), 18.0)
    assert (second.lease, second.seconds, supply.trained) == (8, 3.0, 2)
