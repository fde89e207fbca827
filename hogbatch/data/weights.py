"""Weights of rows: a row's weight multiplies its loss, and so its gradient and its metrics."""

import csv
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import NO_WEIGHTS, Labels
from hogbatch.data.encode import Encoding, label_text
from hogbatch.data.order import RowNumbers
from hogbatch.errors import DataError, UsageError
from hogbatch.machine.printable import printable

BALANCED: Final = "balanced"  # weights with which all classes have the same total
ClassWeights: TypeAlias = str | Mapping[Any, float]  # BALANCED, or by class; 1 for others


def used_rows(weights: Any, rows: int) -> tuple[RowNumbers | None, NDArray[np.float64] | None]:
    """The rows with a weight above 0 (None: all), and their weights (None: equal).

    Rows of weight 0 count as absent: neither scaling nor the mean of the labels depends on them.
    """
    if weights is None:
        return None, None
    own = weights_of(weights, rows)
    kept = None if own.all() else np.flatnonzero(own)
    own = own if kept is None else own[kept]
    return kept, None if (own == own[0]).all() else own


def weights_of(values: Any, rows: int) -> NDArray[np.float64]:
    """The weights of `rows` rows: finite, not negative, not all 0; UsageError for others."""
    try:
        weights = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"sample_weight: expected numbers; {error}") from None
    if weights.shape != (rows,):
        raise UsageError(
            f"sample_weight: expected one number for each of {rows} rows; got shape {weights.shape}"
        )
    unusable = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(unusable):
        raise UsageError(
            "sample_weight: expected finite numbers of at least 0; got "
            f"{weights[unusable[0]]:g} in row {unusable[0]} (counted from 0)"
        )
    if not weights.any():
        raise UsageError("sample_weight: expected a weight above 0; got only zeros")
    return weights


def weighted(
    labels: Labels,
    own: NDArray[np.float64] | None,
    of_class: NDArray[np.float64] | None,
    rows: RowNumbers | None,
) -> Labels:
    """`labels` of N rows with their `own` weights [N], times the weights of their classes [C].

    None: all are 1. They are divided by their mean over `rows` (None: all), so that learning rates
    fit.
    """
    if of_class is not None:
        factors = of_class[labels.values.astype(np.intp)]
        own = factors if own is None else own * factors
    if own is None:
        return labels._replace(weights=NO_WEIGHTS)
    fractions = own / own.max()  # their sum cannot overflow
    mean = (fractions if rows is None else fractions[rows]).mean()
    return labels._replace(weights=(fractions / mean).astype(np.float32))


def weights_of_classes(
    given: ClassWeights,
    encoding: Encoding,
    labels: Labels,
    own: NDArray[np.float64] | None,
    rows: RowNumbers | None,
) -> NDArray[np.float64]:
    """The weight of each class [C]; balanced: over the training `rows`, with their `own` weights.

    UsageError for labels that are not classes, unknown classes, and weights that are not above 0.
    """
    if encoding.kind not in ("binary", "classes"):
        raise UsageError("class_weight: expected labels that are classes; got numbers or lists")
    classes = [label_text(each) for each in encoding.classes]
    if given == BALANCED:
        places = labels.values.astype(np.intp)
        totals: NDArray[np.float64] = np.bincount(
            places if rows is None else places[rows],
            own if own is None or rows is None else own[rows],
            len(classes),
        ).astype(np.float64)
        totals[totals == 0] = np.inf  # no training row has the class
        return np.reciprocal(totals)
    if not isinstance(given, Mapping):
        raise UsageError(f"class_weight: expected 'balanced' or weights by class; got {given!r}")
    weights = np.ones(len(classes))
    for name, weight in given.items():
        if (text := label_text(name)) not in classes:
            known = ", ".join(map(printable, classes[:20]))
            raise UsageError(f"class_weight: no row has the class {text!r}; classes are {known}")
        if not (0 < weight < np.inf):
            raise UsageError(f"class_weight: expected weights above 0; got {weight} of {text!r}")
        weights[classes.index(text)] = weight
    return weights


def read_class_weights(setting: str | None) -> ClassWeights | None:
    """The weights of classes of --class-weight, if any: BALANCED, or from a file.

    Its lines have a class and a weight, separated by a comma. DataError for other lines.
    """
    if setting is None or setting == BALANCED:
        return setting
    weights: dict[str, float] = {}
    try:
        with open(setting, encoding="utf-8-sig", errors="replace", newline="") as file:
            for number, cells in enumerate(csv.reader(file), 1):
                try:
                    name, weight = cells or ("", "1")
                    weights |= {name.strip(): float(weight)} if cells else {}
                except ValueError:
                    raise DataError(
                        f"{printable(setting)}:{number}: expected a class and its weight, such as "
                        f"spam,2.5; got {printable(','.join(cells))}"
                    ) from None
    except OSError as error:
        raise DataError(
            f"--class-weight {printable(setting)}: expected {BALANCED}, or a file with lines such "
            f"as spam,2.5, which cannot be read: {error.strerror}"
        ) from None
    return weights
