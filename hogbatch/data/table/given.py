"""Tables given in Python, as in `hogbatch.data.frames`, and their labels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hogbatch.data import csr
from hogbatch.data.batch import Inputs, RawInputs, dense_inputs
from hogbatch.data.columns import TableForm
from hogbatch.data.frames import table_of
from hogbatch.data.memory import is_sparse, labelled_set, numbers_of, raw_set
from hogbatch.data.raw import Columns, RawSet, unlabelled
from hogbatch.data.row_labels import RowLabels, labels_of
from hogbatch.data.table.columns import NO_VALUE, CategoryColumn, Column, NumberColumn
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.kinds import TableOptions, inspect, requested
from hogbatch.data.weights import used_rows
from hogbatch.errors import DataError, UsageError


def training_set(
    X: Any,
    y: Any,
    weights: Any,
    options: TableOptions,
    *,
    label_names: Sequence[str] = (),
    labels_of_rows: Callable[[int], RowLabels] | None = None,
) -> RawSet:
    """A training table `X` with labels `y`[N] and `weights`[N], to be encoded after the split.

    `label_names` are those of the labels; (): that of `y`, if it is a series with one.
    `labels_of_rows`, if given, returns the labels of N rows in place of `y`. UsageError or
    DataError for columns, lengths and values that cannot be used.
    """
    table = table_of(X, lambda form: _not_dropped(form, options), "X")
    rows = table.rows
    if not rows:
        raise UsageError("X: expected a row and a column that is used; got none")
    labels = labels_of(y, rows, "y") if labels_of_rows is None else labels_of_rows(rows)
    kept, own_weights = used_rows(weights, rows)
    if kept is not None:
        table, labels = table.of_rows(kept), labels.of_rows(kept)
    first, column = len(table.names), _label_column(labels, table.rows)
    for each in label_names or (getattr(y, "name", None),):
        columns = {**table.columns, len(table.names): column}
        name = each if isinstance(each, str) and each else "y"
        while name in table.names:  # it is that of a column
            name += "_"
        table = replace(table, names=(*table.names, name), columns=columns)
    inspected = inspect(table, options, tuple(range(first, len(table.names))))
    if not inspected.kinds:
        raise DataError(f"X: no column can be used as a feature; {inspected.note}")
    for each in inspected.unexpected:
        row = int(each.rows[0] if kept is None else kept[each.rows[0]])
        raise DataError(f"{table.locate(row)}: {each.complaint}")
    return RawSet(
        inputs=dense_inputs(np.empty((table.rows, 0), np.float32)),
        features=0,
        source="X, y",
        columns=Columns((), None, first),
        notes=(inspected.note,),
        table=inspected,
        weights=own_weights,
        **labels._asdict(),
    )


def later_set(
    X: Any,
    y: Any,
    encoding: TableEncoding | None,
    features: int,
    *,
    names: Sequence[str] = (),
    weights: Any = None,
    suffix: str = "",
) -> RawSet:
    """Rows `X` like those of a training set of F = `features`, with labels `y` and `weights`[N].

    They are encoded by its `encoding`; None: they are numbers, and not scaled. The columns of a
    frame are matched by name, if the encoding or else the features have `names`. In messages, the
    names of `X` and `y` end in `suffix`.
    """
    name = f"X{suffix}"
    if encoding is None:
        raw = raw_set(X, y, weights, suffix=suffix, known=names)
        if raw.features != features:
            raise UsageError(
                f"{name}: expected {features} features, as in the training data; got {raw.features}"
            )
        return raw
    return labelled_set(encode(X, encoding, name), features, y, weights, suffix)


def encode(rows: Any, encoding: TableEncoding, name: str) -> Inputs:
    """Encode rows in any form of `hogbatch.data.frames`, or a sparse matrix; `name` is theirs.

    UsageError or DataError for columns and values that cannot be used.
    """
    if is_sparse(rows):
        inputs, features = numbers_of(rows, encoding.width_without_labels, name)
        return encode_numbers(inputs, features, encoding, name)
    if type(rows) is np.ndarray and rows.ndim == 2 and rows.dtype.kind in "biuf":
        _expect_features(rows.shape[1], encoding, name)
        if (found := encoding.transform_matrix(rows, name)) is not None:
            return found

    def match(form: TableForm) -> list[int]:
        if not form.named:
            _expect_features(len(form.names), encoding, name)
        return encoding.match(form)

    return encoding.transform(encoding.adapted(table_of(rows, match, name)))


def _expect_features(got: int, encoding: TableEncoding, source: str) -> None:
    if got != (expected := encoding.width_without_labels):
        raise UsageError(
            f"{source}: expected {expected} features, as in the training data; got {got}"
        )


def _not_dropped(form: TableForm, options: TableOptions) -> list[int]:
    wanted = requested(form, options, ())
    return [n for n in range(len(form.names)) if wanted.get(n) != "drop"]


def _label_column(labels: RowLabels, rows: int) -> Column:
    """The labels as a column; those that a column cannot hold, as zeros."""
    if labels.labels is None or labels.labels.ndim > 1:
        return NumberColumn(np.zeros(rows))
    if labels.label_names and isinstance(labels.label_names[0], str):
        codes = np.where(unlabelled(labels.labels), NO_VALUE, labels.labels).astype(np.int32)
        return CategoryColumn(codes, [str(name) for name in labels.label_names])
    numbers = np.where(unlabelled(labels.labels), np.nan, labels.labels)
    return NumberColumn(numbers, boolean=bool(labels.label_names))


def encode_numbers(
    inputs: RawInputs, features: int, encoding: TableEncoding, source: str
) -> Inputs:
    """Encode a matrix [N, F]: the columns of the training table, in order, without the label.

    UsageError for another F; DataError for a number where a column has dates or text.
    """
    width, sparse = encoding.width_without_labels, len(inputs.indptr) > 0
    if features > width or not sparse:
        _expect_features(features, encoding, source)
    return encode(csr.to_dense(inputs, width).dense, encoding, source)
