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

from hogbatch.data import csr
from hogbatch.data.batch import Examples, Inputs, csr_inputs, dense_inputs
from hogbatch.data.table.given import later_set
from hogbatch.errors import UsageError
from hogbatch.model.prediction import score_rows
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
    raw = later_set(X, y, model.table, model.network.features, names=names).labelled()
    rows = model.fitted.examples(raw, sparse=len(raw.inputs.indptr) > 0)
    return importances_of(model, rows, repeats, seed)


def importances_of(model: Model, rows: Examples, repeats: int, seed: int = 0) -> list[Importance]:
    """As `permutation_importances`, of `rows` that are scaled and encoded."""
    random, found = np.random.default_rng(seed), list[Importance]()
    orders = [random.permutation(rows.rows) for _ in range(repeats)]
    loss, _ = score_rows(model, rows)
    for name, features in _columns(model):
        shuffled = (replace(rows, inputs=_shuffled(rows.inputs, features, o)) for o in orders)
        increases = np.array([score_rows(model, each)[0] - loss for each in shuffled])
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
