"""Selection of active neurons, compared with a slow oracle, and its invariants."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import chi2

from hogbatch.data.batch import multi_labels, single_labels
from hogbatch.kernels.cpu.lsh.functions import DWTA, draw
from hogbatch.kernels.cpu.lsh.selection import (
    HashedRows,
    NeuronFinder,
    SelectionRule,
    clear_positions,
    scratch,
    select,
)
from hogbatch.kernels.cpu.lsh.sketches import WORD_BITS, WORDS, empty_sketches
from hogbatch.kernels.cpu.lsh.tables import empty_tables, insert
from tests.support.kernel_cases import examples, read_only
from tests.support.pairs import pairs

CLASSES, TABLES, BITS, BUCKET, BATCH = 120, 7, 3, 9, 5
GUARD = -9  # after the buffer
GENEROUS = SelectionRule(CLASSES, CLASSES, random=0)
UNLABELED = multi_labels(np.zeros(BATCH + 1, np.int64), np.zeros(0, np.int32))
FUNCTIONS = draw(DWTA, 16, 2, TABLES, BITS, 0)  # not used: `select` takes hashed rows


def filled(random):
    """Hash tables in which some buckets overflow and others are not full."""
    tables = empty_tables(TABLES, BITS, BUCKET)
    codes = np.minimum(random.geometric(0.25, (CLASSES, TABLES)) - 1, 7).astype(np.int32)
    insert(tables, 0, TABLES, codes, random.permutation(CLASSES).astype(np.int32))
    return tables


def row_codes(random, rows=BATCH):
    return random.integers(0, 1 << BITS, (rows, TABLES)).astype(np.int32)


def lists(random, rows, most):
    """Up to `most` labels per row."""
    sizes = random.integers(0, most + 1, rows)
    labels = [np.sort(random.choice(CLASSES, size, replace=False)) for size in sizes]
    indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return multi_labels(indptr, np.concatenate(labels).astype(np.int32))


def sketched(random, classes):
    """Sketches of `classes` neurons, some of which are equal, so that estimates are tied."""
    sketches = empty_sketches(16, classes, 0)
    sketches.neurons[:] = random.integers(-(2**31), 2**31, sketches.neurons.shape)
    sketches.lengths[:] = random.integers(1, 5, classes) / 4
    twins = random.integers(0, classes, (2, classes // 2))
    sketches.neurons[twins[0]] = sketches.neurons[twins[1]]
    sketches.lengths[twins[0]] = sketches.lengths[twins[1]]
    return sketches


class Selector:
    """Scratch and outputs of one thread; checks the invariants after each call."""

    def __init__(self, tables, capacity=CLASSES, seed=0, *, tied=False):
        self.tables = tables
        random = np.random.default_rng(seed)
        self.sketches = sketched(random, CLASSES)
        if tied:  # all estimates are equal: the first found is the best
            self.sketches.lengths[:] = 0
        self.row_sketches = random.integers(-(2**31), 2**31, (BATCH, WORDS)).astype(np.int32)
        self.space = scratch(BATCH, tables, CLASSES, capacity, seed)
        self.place = np.full(CLASSES, -1, np.int32)

    def select(self, rule, codes, labels=UNLABELED, rows=None):
        """The active neurons, in order."""
        rows = np.arange(len(codes)) if rows is None else rows
        true = [neuron for row in rows for neuron in labels_of(labels, row)]
        room = len(true) + rule.capacity + rule.random
        buffer = np.full(room + 1, GUARD, np.int32)
        finder = NeuronFinder(rule, FUNCTIONS, self.tables, self.sketches)
        hashed = HashedRows(codes, self.row_sketches[: len(codes)])
        count = select(
            finder, hashed, read_only(labels), rows, self.space, self.place, buffer[:room]
        )
        active = buffer[:count].tolist()
        assert buffer[room] == GUARD and count <= room
        assert len(set(active)) == count and set(true) <= set(active)
        assert self.place[active].tolist() == list(range(count))
        assert (self.place >= 0).sum() == count
        assert not self.space.is_found.any()
        clear_positions(buffer, count, self.place)
        assert (self.place == -1).all()
        return active


def labels_of(labels, row):
    if not len(labels.indptr):
        return [int(labels.values[row])]
    return labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()


# --- by an oracle ---------------------------------------------------------------------------------


def estimates(sketches, sketch):
    """[C]: length times cosine of the angle to the row, estimated from the Hamming distance.

    Charikar 2002.
    """
    bits = WORD_BITS * WORDS
    distances = np.unpackbits((sketches.neurons ^ sketch).view(np.uint8), axis=1).sum(axis=1)
    return sketches.lengths * np.cos(np.pi * distances / bits).astype(np.float32)


def expected(top, tables, codes, estimate):
    """The candidates of one row, best first."""
    found = []
    for t, code in enumerate(codes):
        size = min(tables.counts[t, code], tables.buckets.shape[2])
        found += tables.buckets[t, code, :size].tolist()
    distinct = list(dict.fromkeys(found))  # in the order of discovery
    return sorted(distinct, key=lambda neuron: -estimate[neuron])[:top]


@given(seed=st.integers(0, 2**32 - 1), top=st.integers(1, 40))
@examples
def test_candidates_of_a_row_are_those_of_the_largest_estimates(seed, top):
    random = np.random.default_rng(seed)
    tables, codes = filled(random), row_codes(random, 1)
    selector = Selector(tables, seed=seed)
    active = selector.select(SelectionRule(top, CLASSES, 0), codes)
    estimate = estimates(selector.sketches, selector.row_sketches[0])
    assert active == expected(top, tables, codes[0], estimate)


@given(seed=st.integers(0, 2**32 - 1))
@examples
def test_a_batch_has_the_labels_and_the_union_of_its_rows(seed):
    random = np.random.default_rng(seed)
    tables, codes, labels = filled(random), row_codes(random), lists(random, 9, 4)
    rows, selector = random.integers(0, 9, BATCH), Selector(tables, seed=seed)
    active = selector.select(SelectionRule(12, CLASSES, 0), codes, labels, rows)
    found = set()
    for row, sketch in zip(codes, selector.row_sketches, strict=True):
        found.update(expected(12, tables, row, estimates(selector.sketches, sketch)))
    assert set(active) == found | {n for row in rows for n in labels_of(labels, row)}


# --- limited capacity -----------------------------------------------------------------------------


def apart(sizes):
    """One table in which row b's bucket contains sizes[b] separate neurons, in ascending order."""
    tables = empty_tables(1, 3, 64)
    codes = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[:, np.newaxis]
    insert(tables, 0, 1, codes, np.arange(len(codes), dtype=np.int32))
    return tables, np.arange(len(sizes), dtype=np.int32)[:, np.newaxis], codes[:, 0]


@pairs(
    capacity=[0, 1, 4, 7, 20, 23, 24, 45, 55],
    sizes=[(30, 2, 20, 0, 6), (11, 11, 11, 11, 11)],
)
def test_rows_contribute_equal_numbers_of_candidates(capacity, sizes):
    sizes = np.array(sizes)
    tables, codes, owner = apart(sizes)
    selector = Selector(tables, capacity, tied=True)
    active = selector.select(SelectionRule(64, capacity, 0), codes)
    fractions = np.bincount(owner[active], minlength=len(sizes))
    assert fractions.sum() == capacity
    short = fractions < sizes
    assert not short.any() or (fractions[short].min() >= fractions.max() - 1)
    for b, fraction in enumerate(fractions):  # the best come first: here, those with the lowest ids
        assert {n for n in active if owner[n] == b} == {
            *range(sizes[:b].sum(), sizes[:b].sum() + fraction)
        }


def test_labels_do_not_use_capacity():
    tables, codes, _ = apart([10])
    labels = multi_labels(np.array([0, 3]), np.array([1, 50, 60], np.int32))
    active = Selector(tables, 4, tied=True).select(GENEROUS._replace(capacity=4), codes, labels)
    assert active == [1, 50, 60, 0, 2, 3]


def test_a_single_label_is_active_once():
    tables, codes, _ = apart([4])
    labels = single_labels(np.array([7, 3, 7], np.float32))
    active = Selector(tables, tied=True).select(GENEROUS, codes[[0, 0, 0]], labels)
    assert active == [7, 3, 0, 1, 2]


# --- at random ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("random", "count"), [(0, 10), (1, 11), (50, 60), (110, 120), (999, 120)])
def test_random_neurons_are_added(random, count):
    tables, codes, _ = apart([10])
    active = Selector(tables, tied=True).select(GENEROUS._replace(random=random), codes)
    assert len(active) == count and active[:10] == list(range(10))


def test_random_neurons_are_uniform_over_inactive_ones():
    tables, codes, _ = apart([10])
    selector, calls, each = Selector(tables, seed=5, tied=True), 300, 11
    drawn = np.zeros(CLASSES)
    for _ in range(calls):
        drawn[selector.select(GENEROUS._replace(random=each), codes)[10:]] += 1
    fraction = each / (CLASSES - 10)
    square = ((drawn[10:] - calls * fraction) ** 2).sum() / (calls * fraction * (1 - fraction))
    low, high = chi2.ppf([0.001, 0.999], CLASSES - 11)
    assert not drawn[:10].any() and low < square < high
