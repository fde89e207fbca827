"""Which rows, in which order: the split into training and test set, and each epoch's order."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Labels, multi_labels, single_labels

Rows = NDArray[np.int64]


def split(rows: int, test_fraction: float) -> tuple[Rows, Rows]:
    """Permute `rows` with seed 0 and cut off the last int(rows * test_fraction) for testing.

    The split is the same for every seed of a run, so that runs can be compared.
    """
    order = np.random.default_rng(0).permutation(rows)
    training = rows - int(rows * test_fraction)
    return order[:training], order[training:]


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
