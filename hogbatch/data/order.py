"""The split into training and test set, and the row order of each epoch."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Labels

RowNumbers = NDArray[np.int64]


def split(
    rows: int,
    test_fraction: float,
    seed: int | tuple[int, ...] = 0,
    classes: NDArray[np.float32] | None = None,
) -> tuple[RowNumbers, RowNumbers]:
    """Permute `rows` with `seed` and use the last int(rows * test_fraction) for testing.

    With `classes`[rows], numbered from 0, the split is stratified: each class contributes its
    fraction of test rows, rounded up or down to keep the sum, and keeps at least one training row.
    If too few classes can be rounded up, there are fewer test rows.
    """
    order = np.random.default_rng(seed).permutation(rows)
    testing = int(rows * test_fraction)
    if classes is None:
        return order[: rows - testing], order[rows - testing :]
    own = classes[order].astype(np.int64)
    by_class = np.argsort(own, kind="stable")
    sizes = np.bincount(own)
    ends = np.cumsum(sizes)
    from_end = np.empty(rows, np.int64)  # number of rows of the same class from this row to the end
    from_end[by_class] = np.repeat(ends, sizes) - np.arange(rows)
    tested = from_end <= _fractions(sizes, testing, own)[own]
    return order[~tested], order[tested]


def _fractions(sizes: RowNumbers, testing: int, own: RowNumbers) -> RowNumbers:
    """The number of test rows of each class, for `sizes` rows per class and `testing` in total.

    Among equal remainders, the class that occurs first in `own`, the classes in random order, is
    rounded up first.
    """
    rows = max(int(sizes.sum()), 1)
    fractions, remainders = np.divmod(sizes * testing, rows)
    first = np.full(len(sizes), rows)
    np.minimum.at(first, own, np.arange(len(own)))
    up = np.lexsort((first, -remainders))
    up = up[(remainders[up] > 0) & (fractions[up] + 1 < sizes[up])]
    fractions[up[: testing - int(fractions.sum())]] += 1
    return fractions


def epoch_order(rows: int, seed: int, epoch: int, last: Sequence[int] = ()) -> RowNumbers:
    """The row order of one epoch; it depends only on the arguments.

    The rows `last` come after all others.
    """
    # The spawn key makes epoch 0 of seed 0 independent of the generator of the split.
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch,)))
    order = random.permutation(rows)
    if not last:
        return order
    behind = np.isin(order, last)
    return np.concatenate([order[~behind], order[behind]])


def order_of_parts(parts: Iterable[tuple[int, int]], seed: int, epoch: int) -> RowNumbers:
    """The row order of one epoch of `parts` (number, rows), each permuted within itself: int64[N].

    The order within a part depends only on its number, its rows, `seed` and `epoch`, so it is the
    same on all servers that have the part, whichever other parts they have.
    """
    orders, start = [np.empty(0, np.int64)], 0
    for number, rows in parts:
        random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, number)))
        orders.append(random.permutation(rows) + start)
        start += rows
    return np.concatenate(orders)


def take(labels: Labels, rows: RowNumbers | None) -> Labels:
    """Copy the labels of `rows`, in that order; None: all of them, not copied."""
    if rows is None:
        return labels
    weights = labels.weights[rows] if len(labels.weights) else labels.weights
    if not len(labels.indptr):
        return labels._replace(values=labels.values[rows], weights=weights)
    indptr, positions = csr.positions(labels.indptr, rows)
    return Labels(labels.values, indptr, labels.indices[positions], weights)
