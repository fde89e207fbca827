"""Means of labels over the rows with each value of a category.

A network learns the weights of a value from the few rows that have it, and overfits them. The mean
of their labels, shrunk towards that of all rows, is one feature whose weight all values train
(Micci-Barreca 2001, "A preprocessing scheme for high-cardinality categorical attributes in
classification and prediction problems").
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.metrics import NUMBERS
from hogbatch.config.sets import SetName
from hogbatch.data.batch import Inputs, Labels
from hogbatch.data.encode import Encoding
from hogbatch.data.order import RowNumbers, fold_numbers
from hogbatch.data.table.columns import Table
from hogbatch.data.table.encoders import CategoryEncoder
from hogbatch.data.table.encoding import TableEncoding

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


class Values(NamedTuple):
    """The values of some rows of the K categories that have mean labels."""

    places: NDArray[np.intp]  # [N, K], see `CategoryEncoder`
    targets: Floats  # [N, C], whose means are features

    def joined(self, rows: NDArray[np.bool_], more: "Values") -> "Values":
        """The values of some rows, and behind them all of `more`."""
        places = np.concatenate([self.places[rows], more.places])
        return Values(places, np.concatenate([self.targets[rows], more.targets]))


class MeanLabels(NamedTuple):
    """The mean labels of a category among the features of rows."""

    size: int  # number of places of the category
    features: slice  # where the means are in dense rows
    stored: int  # where they begin among the stored values of sparse rows

    @classmethod
    def of(cls, encoding: TableEncoding) -> Iterator[Self]:
        """Those of each of the K categories among the features of `encoding`."""
        before = 0
        for own, features in encoding.features_by_column():
            if isinstance(own.encoder, CategoryEncoder) and own.encoder.labels:
                places = slice(features.stop - own.encoder.labels, features.stop)
                yield cls(own.encoder.places, places, before + 1)
            before += own.encoder.stored

    def put(self, inputs: Inputs, means: NDArray[np.float32]) -> None:
        """Give all rows these `means`."""
        if len(inputs.indptr):
            places = self.stored + np.arange(means.shape[1])
            inputs.values[inputs.indptr[:-1, np.newaxis] + places] = means
        else:
            inputs.dense[:, self.features] = means


def put_for_training(encoding: TableEncoding, inputs: Inputs, values: Values) -> None:
    """Give training rows the means of other training rows."""
    for each, places in zip(MeanLabels.of(encoding), values.places.T, strict=True):
        each.put(inputs, means_of_other_rows(places, values.targets, each.size))


def with_means(
    encoding: TableEncoding,
    table: Table,
    parts: Mapping[SetName, RowNumbers | None],
    targets: Floats,
) -> tuple[TableEncoding, dict[SetName, Values]]:
    """`encoding` with means of `targets` [N, C] for categories with many values.

    `table`, a result of `TableEncoding.select`, has N rows, of which `parts` are the sets. Returns
    the values of the rows of each set, too; none if no category has many values.
    """
    columns = list(encoding.columns)
    many = {
        n: own.encoder
        for n, own in enumerate(columns)
        if isinstance(own.encoder, CategoryEncoder) and own.encoder.has_many
    }
    if not many:
        return encoding, {}
    values = dict[SetName, Values]()
    for name, rows in parts.items():
        numbers = table.numbers(rows)
        places = [each.places_of(table.columns[n], numbers) for n, each in many.items()]
        values[name] = Values(np.stack(places, axis=1), targets if rows is None else targets[rows])
    training = values["train"]
    for k, (n, encoder) in enumerate(many.items()):
        means = shrunk_means(training.places[:, k], training.targets, encoder.places)
        columns[n] = replace(columns[n], encoder=replace(encoder, means=means.reshape(-1)))
    return replace(encoding, columns=tuple(columns)), values
