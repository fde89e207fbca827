"""Which rows, in which order: the split into training and test set, and each epoch's order."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Labels, multi_labels, single_labels

Rows = NDArray[np.int64]


def split(
    rows: int, test_fraction: float, seed: int = 0, classes: NDArray[np.float32] | None = None
) -> tuple[Rows, Rows]:
    """Permute `rows` with `seed` and set int(rows * test_fraction) of the last apart for testing.

    With the `classes`[rows] of the rows, numbered from 0, each class gives its share, rounded down
    or up, so that the sum is kept, and keeps at least one row for training. If that leaves too few
    classes to round up, there are fewer test rows.
    """
    order = np.random.default_rng(seed).permutation(rows)
    testing = int(rows * test_fraction)
    if classes is None:
        return order[: rows - testing], order[rows - testing :]
    own = classes[order].astype(np.int64)
    by_class = np.argsort(own, kind="stable")
    sizes = np.bincount(own)
    ends = np.cumsum(sizes)
    from_end = np.empty(rows, np.int64)  # rows of the same class that follow a row, and itself
    from_end[by_class] = np.repeat(ends, sizes) - np.arange(rows)
    tested = from_end <= _fractions(sizes, testing, own)[own]
    return order[~tested], order[tested]


def _fractions(sizes: Rows, testing: int, own: Rows) -> Rows:
    """How many of each class's `sizes` rows are among `testing`; of equal remainders, the class
    that comes first in `own`, the classes in random order, is rounded up first.
    """
    rows = max(int(sizes.sum()), 1)
    fractions, remainders = np.divmod(sizes * testing, rows)
    first = np.full(len(sizes), rows)
    np.minimum.at(first, own, np.arange(len(own)))
    up = np.lexsort((first, -remainders))
    up = up[(remainders[up] > 0) & (fractions[up] + 1 < sizes[up])]
    fractions[up[: testing - int(fractions.sum())]] += 1
    return fractions


def epoch_order(rows: int, seed: int, epoch: int, last: Sequence[int] = ()) -> Rows:
    """Give the order of one epoch; it depends on the arguments and on nothing else.

    The rows `last` come behind all others.
    """
    # A spawn key keeps epoch 0 of seed 0 apart from the generator that made the split.
    sequence = np.random.SeedSequence(seed, spawn_key=(epoch,))
    order = np.random.default_rng(sequence).permutation(rows)
    if not last:
        return order
    behind = np.isin(order, last)
    return np.concatenate([order[~behind], order[behind]])


def take(labels: Labels, rows: Rows | None) -> Labels:
    """Copy the labels of `rows`, in that order; None: all of them, not copied."""
    if rows is None:
        return labels
    if not len(labels.indptr):
        return single_labels(labels.values[rows])
    indptr, positions = csr.positions(labels.indptr, rows)
    return multi_labels(indptr, labels.indices[positions])
