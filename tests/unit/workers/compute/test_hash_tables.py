"""The hash tables of a worker: what they are built from, and when."""

from itertools import pairwise

import numpy as np
from numpy.testing import assert_array_equal

from hogbatch.kernels.contract import ROWS, UPDATES
from hogbatch.workers.compute.hash_tables import HashTables
from tests.support.assignments import NEURONS, wide
from tests.support.hash_table_builds import Rig, in_tables, output_weights, true_codes


def in_parts(parts):
    """A function that divides a range into so many parts, and computes the last one first."""

    def run(function, count):
        edges = [count * part // parts for part in range(parts + 1)]
        for first, last in reversed(list(pairwise(edges))):
            function(first, last)

    return run


# --- what is built --------------------------------------------------------------------------------


def test_tables_do_not_depend_on_the_parts():
    """With buckets that are too small, so that the order of insertion matters."""
    given = wide(bucket=1, bits=2)
    built = [HashTables(given) for _ in range(2)]
    for tables, parts in zip(built, (1, 4), strict=True):
        tables.swap(tables.build(tables.plan(), in_parts(parts)))
    first, second = (tables.finder(tables.current).tables for tables in built)
    held = np.minimum(first.counts, 1) > 0
    assert held.any() and (first.counts > 1).any()
    assert_array_equal(first.counts, second.counts)
    assert_array_equal(first.buckets[held], second.buckets[held])


def test_a_later_build_hashes_only_changed_neurons(monkeypatch):
    rig = Rig(monkeypatch, wide(most=3, random=1))
    rig.train(3)
    changed = np.flatnonzero(rig.tables.thread(rig.thread, 3).changed)
    assert 0 < len(changed) < NEURONS and not rig.builds
    output_weights(rig.given)[changed] *= -1  # so that they belong in other buckets
    rig.train(1)
    ((functions, ids),) = rig.builds
    assert set(changed) <= set(ids.tolist()) and len(ids) < NEURONS
    assert not rig.tables.thread(rig.thread, 3).changed.any()
    assert rig.finder.functions is functions
    assert_array_equal(in_tables(rig.finder), true_codes(rig.given, functions))


def test_all_neurons_are_hashed_after_another_worker_has_written(monkeypatch):
    rig = Rig(monkeypatch, wide(most=3, random=0))
    rig.given.model.merges[0] += 1
    output_weights(rig.given)[:] *= -1
    rig.train(4)
    assert_array_equal(in_tables(rig.finder), true_codes(rig.given, rig.builds[0][0]))
    rig.train(4)
    first, second = rig.builds.counts
    assert first == NEURONS and second < NEURONS


def test_updates_of_batches_in_progress_are_not_counted_as_those_of_other_workers(monkeypatch):
    """The build happens in the middle of a lease, as in the background."""
    rig, steps = Rig(monkeypatch, wide(rehash=100)), 5
    for others in (0, steps + 1):
        rig.tables.begin(steps)
        rig.given.model.steps[0] += steps
        rig.given.model.merges[0] += others
        rig.tables.swap(rig.tables.build(rig.tables.plan()))
        assert not rig.tables.end(steps, steps)
    assert rig.builds.counts == [0, NEURONS]


def test_many_small_changes_of_other_workers_are_detected(monkeypatch):
    rig = Rig(monkeypatch, wide(rehash=100))
    for _ in range(7):
        rig.tables.begin(5)
        rig.given.model.merges[0] += 1
        rig.tables.swap(rig.tables.build(rig.tables.plan()))
        rig.tables.end(5, 0)
    assert rig.builds.counts == [0] * 5 + [NEURONS, 0]


def test_all_neurons_get_new_functions_every_rebuild_interval(monkeypatch):
    rig = Rig(monkeypatch, wide(rehash=2, rebuild=3, most=3, random=0))
    functions = [rig.finder.functions]
    rig.train(2 * 7)
    assert [count == NEURONS for count in rig.builds.counts] == [n % 3 == 2 for n in range(7)]
    functions += [each for each, _ in rig.builds]
    new = [not (a.bins == b.bins).all() for a, b in pairwise(functions)]
    assert new == [n % 3 == 2 for n in range(7)]
    assert rig.finder.functions is functions[-1]
    assert_array_equal(in_tables(rig.finder), true_codes(rig.given, functions[-1]))


def test_tables_are_rebuilt_when_nothing_has_changed(monkeypatch):
    """The rows have no labels, and no outputs are found for them."""
    rig = Rig(monkeypatch, wide(most=0, random=0))
    rig.given.train.labels.indptr.flags.writeable = True
    rig.given.train.labels.indptr[:] = 0
    rig.given.train.labels.indptr.flags.writeable = False
    rig.train(4)
    assert rig.builds.counts == [0]


# --- when -----------------------------------------------------------------------------------------


# --- the state of a thread ------------------------------------------------------------------------


def test_larger_batches_get_more_memory(monkeypatch):
    rig = Rig(monkeypatch, wide())
    for batch in (1, 50, 7):
        assert rig.train(2, batch)[ROWS] == 2 * batch
    kept = rig.tables.thread(rig.thread, 7)
    assert len(kept.space.sizes) >= 50 and rig.tables.thread(rig.thread, 50) is kept


def test_settings_beyond_the_number_of_neurons_take_no_memory(monkeypatch):
    huge = 2**31 - 1
    rig = Rig(monkeypatch, wide(most=huge, random=huge, top=huge))
    assert rig.train(2)[UPDATES] == 2
