"""The rows of the members of an ensemble, of which each holds out others for validation.

Breiman 1996, "Bagging Predictors", with the rows that a member is not trained on drawn without
replacement, as in cross-validation.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from hogbatch.config.sets import SetName
from hogbatch.data import csr
from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.data.facts import require_memory_for_copy
from hogbatch.data.load import LoadedData
from hogbatch.data.order import RowNumbers, fold_numbers, take
from hogbatch.data.scale import scaled
from hogbatch.data.table.means import MeanLabels, put_for_training, shrunk_means

Sets: TypeAlias = Mapping[SetName, Examples]
Rows = TypeVar("Rows", Inputs, Labels)


def rows_of_member(data: LoadedData, number: int, seed: int) -> Sets:
    """The training and validation rows of member `number`, from 1.

    The rows are divided into folds of about as many rows as the validation set, which is the first
    one. The others are drawn from the training rows with `seed`, stratified by class. Members hold
    out the folds in turn, so that the rows of one do not depend on the number of members.
    Mean labels of categories are those of its own training rows. UsageError if there is no memory
    for a copy of the rows.
    """
    train, validation = data.train, data.sets["validation"]
    folds = round((train.rows + validation.rows) / validation.rows)
    fold = (number - 1) % max(folds, 1)
    if not fold:
        return {"train": train, "validation": validation}
    require_memory_for_copy(train.inputs)
    classes = train.labels.values if data.encoding.kind in ("binary", "classes") else None
    held_out = fold_numbers(train.rows, folds - 1, seed, classes) == fold - 1
    rest, own = (rows_of(train, np.flatnonzero(each)) for each in (~held_out, held_out))
    sets: Sets = {"train": joined([rest, validation]), "validation": own}
    if data.values:
        assert data.table is not None
        known = data.values["train"]
        training = known.joined(~held_out, data.values["validation"])
        put_for_training(data.table, sets["train"].inputs, training)
        for k, each in enumerate(MeanLabels.of(data.table)):
            means = shrunk_means(training.places[:, k], training.targets, each.size)
            each.put(own.inputs, means[known.places[held_out, k]])
    return sets


def joined(parts: Sequence[Examples]) -> Examples:
    """The rows of all `parts`, one after another; they have the same form."""
    inputs, labels = [each.inputs for each in parts], [each.labels for each in parts]
    return Examples(_joined(inputs), _joined(labels), parts[0].features)


def _joined(parts: Sequence[Rows]) -> Rows:
    """The arrays of several sets, one after another."""
    arrays = [np.concatenate(each) for each in zip(*parts, strict=True)]
    whole = type(parts[0])(*arrays)
    if not len(whole.indptr):
        return whole
    return whole._replace(indptr=csr.joined([each.indptr for each in parts]))


def rows_of(examples: Examples, rows: RowNumbers) -> Examples:
    """A copy of some rows, in that order."""
    labels = take(examples.labels, rows, examples.targets)
    return Examples(scaled(examples.inputs, None, rows), labels, examples.features)
