"""Selection of active neurons: each rule compared with a slow oracle, and common invariants."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import chi2

from hogbatch.data.batch import multi_labels, single_labels
from hogbatch.kernels.cpu.lsh.functions import DWTA, draw
from hogbatch.kernels.cpu.lsh.selection import (
    MAX_COUNT,
    NEAREST,
    RULES,
    THRESHOLD,
    TOPK,
    UNION,
    VANILLA,
    HashedRows,
    NeuronFinder,
    SelectionRule,
    clear_positions,
    scratch,
    select,
)
from hogbatch.kernels.cpu.lsh.sketches import WORD_BITS, WORDS, empty_sketches
from hogbatch.kernels.cpu.lsh.tables import BucketArrays, empty_tables, insert
from tests.support.kernel_cases import examples, read_only
from tests.support.pairs import pairs

CLASSES, TABLES, BITS, BUCKET, BATCH = 120, 7, 3, 9, 5
GUARD = -9  # after the buffer
rules = pytest.mark.parametrize("kind", RULES.values(), ids=RULES.keys())
GENEROUS = SelectionRule(UNION, top=12, min_buckets=2, capacity=CLASSES, random=0)
UNLABELED = multi_labels(np.zeros(BATCH + 1, np.int64), np.zeros(0, np.int32))
FUNCTIONS = draw(DWTA, 16, 2, TABLES, BITS, 0)  # not used: `select` takes hashed rows


def filled(random):
    """Hash tables in which some buckets overflow and others are not full."""
    tables = empty_tables(TABLES, BITS, BUCKET)
    codes = np.minimum(random.geometric(0.25, (CLASSES, TABLES)) - 1, 7).astype(np.int32)
    insert(tables, 0, TABLES, codes, random.permutation(CLASSES).astype(np.int32), False, 0)
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

    def __init__(self, tables, capacity=CLASSES, seed=0, classes=CLASSES, batch=BATCH):
        self.tables = tables
        random = np.random.default_rng(seed)
        self.sketches = sketched(random, classes)
        self.row_sketches = random.integers(-(2**31), 2**31, (batch, WORDS)).astype(np.int32)
        self.space = scratch(batch, tables, classes, capacity, seed)
        self.place = np.full(classes, -1, np.int32)

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
        assert not self.space.bucket_counts.any()
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


def expected(rule, tables, codes, order, estimate=None):
    """The candidates of one row, best first; `order` of the tables for vanilla and union."""
    seen = []
    for t in order if rule.kind in (VANILLA, UNION) else range(len(codes)):
        size = min(tables.counts[t, codes[t]], tables.buckets.shape[2])
        seen += tables.buckets[t, codes[t], :size].tolist()
    counts = Counter(seen)
    distinct = list(counts)  # in the order of discovery
    if rule.kind == VANILLA:
        return distinct[: rule.top]
    if rule.kind == UNION:
        return distinct
    if rule.kind == NEAREST:
        return sorted(distinct, key=lambda neuron: -estimate[neuron])[: rule.top]
    ranked = sorted(distinct, key=lambda neuron: -counts[neuron])  # stable
    if rule.kind == TOPK:
        return ranked[: rule.top]
    return [neuron for neuron in ranked if counts[neuron] >= rule.min_buckets]


@rules
@given(seed=st.integers(0, 2**32 - 1), top=st.integers(1, 40), min_buckets=st.integers(1, TABLES))
@examples
def test_candidates_of_a_row_follow_its_rule_best_first(kind, seed, top, min_buckets):
    random = np.random.default_rng(seed)
    tables, codes = filled(random), row_codes(random, 1)
    selector = Selector(tables, seed=seed)
    rule = SelectionRule(kind, top, min_buckets, CLASSES, random=0)
    active = selector.select(rule, codes)
    estimate = estimates(selector.sketches, selector.row_sketches[0])
    assert active == expected(rule, tables, codes[0], selector.space.order, estimate)


@pytest.mark.parametrize("kind", [THRESHOLD, NEAREST])
@given(seed=st.integers(0, 2**32 - 1))
@examples
def test_a_batch_has_the_labels_and_the_union_of_its_rows(kind, seed):
    random = np.random.default_rng(seed)
    tables, codes, labels = filled(random), row_codes(random), lists(random, 9, 4)
    rows, rule = random.integers(0, 9, BATCH), GENEROUS._replace(kind=kind)
    selector = Selector(tables, seed=seed)
    active = selector.select(rule, codes, labels, rows)
    found = set()
    for row, sketch in zip(codes, selector.row_sketches, strict=True):
        estimate = estimates(selector.sketches, sketch)
        found.update(expected(rule, tables, row, range(TABLES), estimate))
    assert set(active) == found | {n for row in rows for n in labels_of(labels, row)}


def test_vanilla_starts_with_every_table_equally_often():
    selector = Selector(filled(np.random.default_rng(3)))
    codes, calls = np.zeros((1, TABLES), np.int32), 350
    first = np.zeros(TABLES)
    for _ in range(calls):
        selector.select(SelectionRule(VANILLA, 1, 1, CLASSES, 0), codes)
        first[selector.space.order[0]] += 1
    square = ((first - calls / TABLES) ** 2).sum() / (calls / TABLES)
    assert square < chi2.ppf(0.999, TABLES - 1)


def test_bucket_counts_saturate():
    count = MAX_COUNT + 9
    tables = BucketArrays(np.zeros((count, 2, 2), np.int32), np.ones((count, 2), np.int32))
    tables.buckets[::2, 0] = 1
    codes = np.zeros((1, count), np.int32)
    for min_buckets, found in ((1, [0, 1]), (count, [])):
        rule = SelectionRule(THRESHOLD, 1, min_buckets, 9, 0)
        assert sorted(Selector(tables).select(rule, codes)) == found
    tables.buckets[:] = 1
    assert Selector(tables).select(SelectionRule(THRESHOLD, 1, count, 9, 0), codes) == [1]


# --- limited capacity -----------------------------------------------------------------------------


def apart(sizes):
    """One table in which row b's bucket contains sizes[b] separate neurons, in ascending order."""
    tables = empty_tables(1, 3, 64)
    codes = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[:, np.newaxis]
    insert(tables, 0, 1, codes, np.arange(len(codes), dtype=np.int32), False, 0)
    return tables, np.arange(len(sizes), dtype=np.int32)[:, np.newaxis], codes[:, 0]


@pairs(
    kind=RULES,
    capacity=[0, 1, 4, 7, 20, 23, 24, 45, 55],
    sizes=[(30, 2, 20, 0, 6), (11, 11, 11, 11, 11)],
)
def test_rows_contribute_equal_numbers_of_candidates(kind, capacity, sizes):
    sizes = np.array(sizes)
    tables, codes, owner = apart(sizes)
    rule = SelectionRule(kind, top=64, min_buckets=1, capacity=capacity, random=0)
    selector = Selector(tables, capacity)
    selector.sketches.lengths[:] = 0  # all estimates are equal: the first found is the best
    active = selector.select(rule, codes)
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
    active = Selector(tables, 4).select(GENEROUS._replace(capacity=4), codes, labels)
    assert active == [1, 50, 60, 0, 2, 3]


def test_a_single_label_is_active_once():
    tables, codes, _ = apart([4])
    labels = single_labels(np.array([7, 3, 7], np.float32))
    active = Selector(tables).select(GENEROUS, codes[[0, 0, 0]], labels)
    assert active == [7, 3, 0, 1, 2]


# --- at random ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("random", "count"), [(0, 10), (1, 11), (50, 60), (110, 120), (999, 120)])
def test_random_neurons_are_added(random, count):
    tables, codes, _ = apart([10])
    active = Selector(tables).select(GENEROUS._replace(random=random), codes)
    assert len(active) == count and active[:10] == list(range(10))


def test_random_neurons_are_uniform_over_inactive_ones():
    tables, codes, _ = apart([10])
    selector, calls, each = Selector(tables, seed=5), 300, 11
    drawn = np.zeros(CLASSES)
    for _ in range(calls):
        drawn[selector.select(GENEROUS._replace(random=each), codes)[10:]] += 1
    fraction = each / (CLASSES - 10)
    square = ((drawn[10:] - calls * fraction) ** 2).sum() / (calls * fraction * (1 - fraction))
    low, high = chi2.ppf([0.001, 0.999], CLASSES - 11)
    assert not drawn[:10].any() and low < square < high
