"""Means of labels over the rows with each value of a category.

A network learns the weights of a value from the few rows that have it, and overfits them. The mean
of their labels, shrunk towards that of all rows, is one feature whose weight all values train
(Micci-Barreca 2001, "A preprocessing scheme for high-cardinality categorical attributes in
classification and prediction problems").
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.metrics import NUMBERS
from hogbatch.data.batch import Labels
from hogbatch.data.encode import Encoding
from hogbatch.data.order import RowNumbers, fold_numbers

Floats = NDArray[np.float64]

MAX_CLASSES: Final = 10  # with more, their means are too many features
FOLDS: Final = 5


def targets_of(labels: Labels, encoding: Encoding, training: RowNumbers | None) -> Floats | None:
    """The numbers whose means are features: float64[N, C].

    These are the labels, or an indicator of each class (of two: of the larger one), with mean 0 and
    standard deviation 1 in the `training` rows (None: all). None for lists of labels and more than
    MAX_CLASSES classes.
    """
    if encoding.kind == "multilabel" or (
        encoding.kind not in NUMBERS and encoding.outputs > MAX_CLASSES
    ):
        return None
    targets = labels.values.astype(np.float64).reshape(-1, encoding.targets)
    if encoding.kind == "classes":
        targets = (targets == np.arange(encoding.outputs)).astype(np.float64)
    own = targets if training is None else targets[training]
    deviation = own.std(axis=0)
    targets -= own.mean(axis=0)
    targets /= np.where(deviation > 0, deviation, 1.0)
    return targets


def shrunk_means(places: NDArray[np.intp], targets: Floats, count: int) -> NDArray[np.float32]:
    """The means of `targets` [N, C] over the rows with each of `count` places: float32[count, C].

    The mean over n rows is multiplied by n / (n + r), where r is the variance within places divided
    by that between them, both estimated from all places (Searle, Casella & McCulloch 1992,
    "Variance components", section 3.6). `targets` have mean 0, which is the mean over no rows.
    """
    rows = np.bincount(places, minlength=count)[:, np.newaxis]
    sums = np.stack([np.bincount(places, own, count) for own in targets.T], axis=1)
    used = np.count_nonzero(rows)
    explained = (sums**2 / np.maximum(rows, 1)).sum(axis=0)
    within = ((targets**2).sum(axis=0) - explained) / max(len(targets) - used, 1)
    size = len(targets) - (rows**2).sum() / max(len(targets), 1)  # 0 with a single place
    between = (explained - (used - 1) * within) / max(size, 1.0)
    ratio = within / np.maximum(between, 1e-3)
    means: NDArray[np.float32] = (sums / np.maximum(rows + ratio, 1e-9)).astype(np.float32)
    return means


def means_of_other_rows(
    places: NDArray[np.intp], targets: Floats, count: int
) -> NDArray[np.float32]:
    """For each row, the `shrunk_means` of its place over the rows in other folds: float32[N, C].

    A mean that includes the label of its row would reveal this label in training, but not later.
    """
    found = np.empty(targets.shape, np.float32)
    folds = fold_numbers(len(places), FOLDS, seed=0)
    for fold in range(FOLDS):
        own, others = folds == fold, folds != fold
        found[own] = shrunk_means(places[others], targets[others], count)[places[own]]
    return found
