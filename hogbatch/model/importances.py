"""Permutation importances: how much worse a model is on rows in which one column is shuffled.

Breiman 2001, "Random Forests"; Fisher, Rudin & Dominici 2019, "All Models are Wrong, but Many are
Useful". All features of a column are shuffled together, so that it has its values and its
encoding, in other rows.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import OfNumbers
from hogbatch.data import csr
from hogbatch.data.batch import Examples, Inputs, csr_inputs, dense_inputs
from hogbatch.data.encode import encode
from hogbatch.data.labelled import labelled
from hogbatch.data.scale import scaled
from hogbatch.data.table.given import later_set
from hogbatch.errors import UsageError
from hogbatch.kernels.contract import EXTRA_WEIGHT, LOSS, TOTALS
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.model.prediction import evaluate_rows
from hogbatch.model.trained import Model


class Importance(NamedTuple):
    """The increase of the loss per row when the values of a column are shuffled."""

    column: str  # name; its number, from 0, if it has none
    mean: float
    deviation: float  # standard deviation over the repeats


def permutation_importances(
    model: Model, X: Any, y: Any, *, repeats: int = 5, seed: int = 0
) -> list[Importance]:
    """The importance of each column that `model` uses, highest first.

    `X` [N, F] and `y` [N] are rows that the model was not trained on, in the forms of
    :func:`hogbatch.train`. Each column is shuffled `repeats` times. The loss is that of
    `hogbatch evaluate`. UsageError or DataError for rows that the model cannot be applied to.
    """
    if repeats < 1:
        raise UsageError(f"repeats: expected at least 1; got {repeats}")
    names = model.feature_names or ()
    raw = labelled(later_set(X, y, model.table, model.network.features, names=names))
    inputs, labels = scaled(raw.inputs, model.scaler), encode(raw, model.encoding)
    return importances_of(model, Examples(inputs, labels, raw.features), repeats, seed)


def importances_of(model: Model, rows: Examples, repeats: int, seed: int = 0) -> list[Importance]:
    """As `permutation_importances`, of `rows` that are scaled and encoded."""
    random, found = np.random.default_rng(seed), list[Importance]()
    orders = [random.permutation(rows.rows) for _ in range(repeats)]
    plain = model.plain
    loss = _mean_loss(plain, rows)
    for name, features in _columns(model):
        shuffled = (replace(rows, inputs=_shuffled(rows.inputs, features, o)) for o in orders)
        increases = np.array([_mean_loss(plain, each) - loss for each in shuffled])
        found.append(Importance(name, float(increases.mean()), float(increases.std())))
    return sorted(found, key=lambda each: -each.mean)


def _columns(model: Model) -> Iterator[tuple[str, slice]]:
    """The columns that a model uses, with their features."""
    if model.table is not None:
        return ((column.name, features) for column, features in model.table.features_by_column())
    names = model.feature_names or map(str, range(model.network.features))
    return ((name, slice(n, n + 1)) for n, name in enumerate(names))


def _shuffled(inputs: Inputs, features: slice, order: NDArray[np.int64]) -> Inputs:
    """The same rows, but with the values that the rows `order` have of some features."""
    if not len(inputs.indptr):
        dense = inputs.dense.copy()
        dense[:, features] = inputs.dense[order, features]
        return dense_inputs(dense)
    moved = (inputs.indices >= features.start) & (inputs.indices < features.stop)
    rows = csr.rows_of(inputs.indptr)
    rows[moved] = np.argsort(order)[rows[moved]]
    by_row = np.lexsort((inputs.indices, rows))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(order)))))
    return csr_inputs(indptr, inputs.indices[by_row], inputs.values[by_row])


def _mean_loss(model: Model, rows: Examples) -> float:
    """The loss per row of a model without scaling and encoding, in the unit of the labels."""
    labels, outputs = rows.labels, model.network.outputs
    if isinstance(model.loss, OfNumbers):
        return evaluate_rows(model, rows)["loss"]
    if outputs > 1:
        lists = labels.indptr, labels.indices
        if not model.loss.label_lists:
            lists = np.arange(rows.rows + 1), labels.values.astype(np.int32)
        parts = model.summaries(rows.inputs, 1, model.loss.kind, lists)
        losses = np.concatenate([part.losses() for part in parts])
        return float(np.average(losses, weights=labels.weights if len(labels.weights) else None))
    scores, totals = model.scores(rows.inputs), np.zeros(TOTALS)
    every = np.arange(rows.rows)
    NUMPY_KERNELS.loss_and_metrics(model.loss.kind, labels, every, outputs, scores, totals)
    return float(totals[LOSS] / (rows.rows + totals[EXTRA_WEIGHT]))
