"""The coefficients of linear models, by the columns that were given to `fit`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.scale import Scaler
from hogbatch.data.schema import TO_ZERO
from hogbatch.data.table.encoders import CategoryEncoder
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.numeric import NumericEncoder
from hogbatch.model.trained import Model

Floats = NDArray[np.float64]


class Coefficients(NamedTuple):
    """The scores of rows x [D] are weights @ x + intercept."""

    weights: Floats  # [C, D]
    intercept: Floats  # [C]


def coefficients(model: Model, columns: int) -> Coefficients:
    """The coefficients of D = `columns` in their own units; 0 for columns that are not used.

    For real labels, the scores are in the unit of the labels; for counts they are the logarithms of
    the predictions, for logs their log1p. AttributeError for a model with hidden layers, or with a
    column that is not one feature, such as a category.
    """
    weights, bias = _linear(model)
    positions, scaler = np.arange(model.network.features), model.scaler
    if model.table is not None:
        positions, scaler = model.table.positions_without_labels, _scaler(model.table)
    found, intercept = np.zeros((model.network.outputs, columns)), bias
    if scaler is not None:
        weights = np.where(scaler.scale == TO_ZERO, 0.0, weights / scaler.scale)
        intercept = bias - weights @ scaler.mean
    found[:, positions] = weights
    if model.encoding.kind in ("real", "logs"):
        unit = np.reshape(model.encoding.scale, (-1, 1))  # [C, 1]
        return Coefficients(found * unit, intercept * unit[:, 0] + model.encoding.offset)
    if model.encoding.kind == "counts":
        intercept = intercept + np.log(model.encoding.scale)
    return Coefficients(found, intercept)


def column_norms(model: Model, columns: int) -> Floats:
    """The norm of the coefficients of the features of each column: float64[D].

    The features are scaled and encoded, so that columns of different units and kinds can be
    compared. AttributeError for a model with hidden layers.
    """
    weights, _ = _linear(model)
    norms = np.zeros(columns)
    if model.table is None:
        norms[:] = np.linalg.norm(weights, axis=0)
        return norms
    positions = model.table.positions_without_labels
    owners = zip(positions, model.table.features_by_column(), strict=True)
    for position, (own, features) in owners:
        part = weights[:, features].copy()
        if isinstance(own.encoder, CategoryEncoder):  # rare values have smaller features
            part[:, : len(own.encoder.weights)] *= own.encoder.weights
        norms[position] = np.linalg.norm(part)
    return norms


def _linear(model: Model) -> Coefficients:
    """The weights [C, F] and the bias [C] of the only layer."""
    if not model.network.linear or model.others:
        raise AttributeError(
            "only single linear models have coefficients: fit with hidden=(), members=1"
        )
    (layer,) = model.layers
    return Coefficients(layer.weights.T.astype(np.float64), layer.bias.astype(np.float64))


def _scaler(table: TableEncoding) -> Scaler:
    """The scaling of a table of numbers; AttributeError for other tables."""
    encoders = [column.encoder for column in table.columns]
    numbers = [each for each in encoders if isinstance(each, NumericEncoder) and each.linear]
    if len(numbers) < len(encoders):
        raise AttributeError(
            "coef_ needs columns of numbers without missing values, with a scale that is linear, "
            "such as standard; feature_importances_ has one number per column of any table"
        )
    return Scaler(
        np.array([each.mean for each in numbers]), np.array([each.scale for each in numbers])
    )
