"""Evaluation and prediction of a data file with a model file, for `evaluate` and `predict`."""

import csv
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import OfNumbers
from hogbatch.config.metrics import CUTOFFS, keeps_all_scores
from hogbatch.data.batch import NO_WEIGHTS, Examples, Labels, RawInputs, count, single_labels
from hogbatch.data.cache import DataCache
from hogbatch.data.encode import Encoding, encode, label_text, number_labels
from hogbatch.data.later import expect_labels, pieces_as, rows_as
from hogbatch.data.raw import DEFAULTS, RawSet, ReadOptions
from hogbatch.data.weights import weighted
from hogbatch.errors import SaveError, UsageError
from hogbatch.kernels.blocks import between
from hogbatch.kernels.contract import EXTRA_WEIGHT, LOSS, TOTALS, Floats
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.machine.printable import printable
from hogbatch.model.file import load_model
from hogbatch.model.inputs import label_lists
from hogbatch.model.metrics import Scored, measure
from hogbatch.model.trained import Model, expect_finite_scores

MAX_CLASSES = 100  # whose probabilities are in a CSV file without --proba
MAX_CELLS = 1 << 22  # of a matrix [rows, outputs] in memory, unless one row has more


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file and how to read it; `report` receives messages for the user about it."""

    path: str
    options: ReadOptions = DEFAULTS  # as the user has given them; others are those of the model
    cache: DataCache | None = None
    report: Callable[[str], object] = lambda line: None


def evaluate_file(model_path: str, data: DataFile) -> dict[str, float]:
    """The number of rows, loss per row, and metrics of a model on a file with labels.

    Loss and metrics are means weighted by the weights of the rows. The labels are read like those
    of the training file; DataError for a label that did not occur there.
    """
    model = load_model(model_path)
    raw = _rows(model, data, labels=True)
    expect_labels(raw, model.columns)
    labels = weighted(encode(raw, model.encoding), raw.weights, None, None)
    of_numbers = isinstance(model.loss, OfNumbers)
    numbers = number_labels(raw, "the training data has") if of_numbers else None
    loss, scored = _score(model, raw.inputs, labels, numbers)
    measured = measure(scored)
    measured.pop("log_loss", None)  # models that have it are trained on it: it is the loss
    return {"rows": raw.rows, "loss": loss, **measured}


def evaluate_rows(model: Model, rows: Examples) -> dict[str, float]:
    """Loss and all metrics of a model on `rows` that are scaled and encoded for it."""
    loss, scored = score_rows(model, rows)
    return {"loss": loss, **measure(scored)}


def score_rows(model: Model, rows: Examples) -> tuple[float, Scored]:
    """The loss of a model on `rows` that are scaled and encoded for it, and their scores."""
    return _score(model.plain, rows.inputs, rows.labels)


def score_numbers(
    loss: OfNumbers,
    encoding: Encoding,
    scores: Floats,
    labels: NDArray[np.float64],
    weights: NDArray[np.float32] = NO_WEIGHTS,
) -> tuple[float, Scored]:
    """The loss of scores [N, T] of numbers [N, T] or [N], in the unit of the labels, and numbers.

    The rows have `weights` [N], or are equal. Metrics are means over the T targets; the loss is
    that of standardised targets, and the metrics of each target are in its own unit. They are of
    numbers rather than of the scores, which are more precise.
    """
    (rows, width), totals = scores.shape, np.zeros(TOTALS)
    given = loss.predict(scores)
    exact: Any = loss.scores_of(encoding.targets_of(encoding.numbers_of(given))).reshape(
        rows, width
    )
    predicted = encoding.predictions_of(given).reshape(rows, width)
    targets, true = (  # float64, because no compiled kernel reads them
        single_labels(cast(Any, each.reshape(-1)))._replace(weights=weights)
        for each in (encoding.targets_of(labels), labels)
    )
    NUMPY_KERNELS.loss_and_metrics(loss.kind, targets, np.arange(rows), width, exact, totals)
    mean = totals[LOSS] / width / (rows + totals[EXTRA_WEIGHT])
    return loss.in_units(mean, {}, encoding.unit).loss, Scored(loss, true, predicted)


def _score(
    model: Model, inputs: RawInputs, labels: Labels, numbers: NDArray[Any] | None = None
) -> tuple[float, Scored]:
    """The loss of a model, and scores, or the best columns if scores are too many to be kept.

    `numbers`, if given, are the labels in float64, of a model of numbers.
    """
    numeric = isinstance(model.loss, OfNumbers)
    if not numeric and not keeps_all_scores(count(inputs), model.network.outputs):
        lists = label_lists(labels)
        k = min(max(CUTOFFS), model.network.outputs)
        summaries = model.summaries(inputs, k, model.loss.kind, (lists.indptr, lists.indices))
        parts = [(part.columns, part.losses()) for part in summaries]
        best, losses = (np.concatenate(each) for each in zip(*parts, strict=True))
        scored = Scored(model.loss, labels, None, best, frequencies=model.frequencies)
        return scored.mean(losses), scored
    scores, totals, rows = model.scores(inputs), np.zeros(TOTALS), np.arange(count(inputs))
    expect_finite_scores(np.isfinite(scores).all(axis=1))
    if isinstance(model.loss, OfNumbers):
        if numbers is None:
            numbers = model.encoding.numbers_of(labels.values.reshape(scores.shape))
        return score_numbers(model.loss, model.encoding, scores, numbers, labels.weights)
    exact: Any = scores.astype(np.float64)
    NUMPY_KERNELS.loss_and_metrics(model.loss.kind, labels, rows, scores.shape[1], exact, totals)
    scored = Scored(model.loss, labels, scores, None, model.frequencies, model.threshold)
    return float(totals[LOSS] / (len(rows) + totals[EXTRA_WEIGHT])), scored


def predict_file(
    model_path: str,
    data: DataFile,
    *,
    proba: bool = False,
    top: int | None = None,
    approximate: bool = False,
    table: bool = False,
) -> Iterator[str]:
    """Yield one line per row: its label, its probabilities, or its `top` labels, best first.

    `approximate` is as in `Model.top`. A `table` is a CSV file, with a header, and probabilities
    beside the label; of label lists and of more than MAX_CLASSES classes only with `proba`. For
    label lists, the `top` labels are always XMC text: a header "rows labels", then
    "label:probability" pairs in label order, the format of score matrices in the Extreme
    Classification Repository.
    """
    model = load_model(model_path)
    if top is not None and model.encoding.kind not in ("classes", "multilabel"):
        raise UsageError("--top needs a model with several classes or labels; this has none")
    if top is not None and model.encoding.kind == "multilabel":
        inputs = _rows(model, data, labels=False).inputs
        found = model.top_proba(inputs, top, approximate=approximate)
        return _xmc_lines(model.network.outputs, *found)
    if top is not None:
        columns = [_best(model, top, approximate, label_text if table else _label)]
    else:
        columns = _columns(model, proba, table)
    pieces = _pieces(model, data, lambda none: [each.cells(none) for each in columns])
    labels = model.encoding.kind == "classes" and not proba and len(columns) == 1
    rows = (
        itertools.chain(*cells)
        for piece in pieces
        for part in _parts(piece, 1 if labels else model.network.outputs)
        for cells in zip(*(each.cells(part) for each in columns), strict=True)
    )
    if top is None and not table:
        return map(" ".join, rows)
    writer = csv.writer(SimpleNamespace(write=lambda line: line[:-2]))  # its lines end in \r\n
    header = [[name for each in columns for name in each.names]] if table else []
    return map(writer.writerow, itertools.chain(header, rows))


class PredictedColumns(NamedTuple):
    """Columns of a CSV file, and the cells of rows in them."""

    names: list[str]
    cells: Callable[[RawInputs], Iterable[list[str]]]  # computes predictions before it returns


def _best(
    model: Model, top: int, approximate: bool, show: Callable[[Any], str]
) -> PredictedColumns:
    """The `top` labels of each row, best first."""
    names, classes = [f"top_{n}" for n in range(1, top + 1)], [*map(show, model.encoding.classes)]
    best = partial(model.top, k=top, approximate=approximate)
    return PredictedColumns(names, lambda rows: ([classes[n] for n in row] for row in best(rows)))


def _columns(model: Model, proba: bool, table: bool) -> list[PredictedColumns]:
    """The predictions of each row, its probabilities, or in a table both."""
    classes = [label_text(label) for label in model.encoding.classes]
    show = label_text if table else _label
    cell = _chosen if model.encoding.kind == "multilabel" else lru_cache(typed=True)(show)
    predicted = PredictedColumns(
        ["prediction"], lambda rows: ([cell(value)] for value in model.predict(rows))
    )
    if model.encoding.targets > 1:
        predicted = PredictedColumns(
            [f"prediction_{name}" for name in model.target_names],
            lambda rows: ([*map(label_text, row)] for row in model.predict(rows)),
        )
    fractions = PredictedColumns(
        [f"probability_{name}" for name in classes or range(model.network.outputs)],
        lambda rows: (
            [f"{value:.6g}" for value in row] for row in model.predict_proba(rows).tolist()
        ),
    )
    if proba:
        return [fractions]
    few = table and model.loss.has_probabilities and 0 < len(classes) <= MAX_CLASSES
    return [predicted, fractions] if few else [predicted]


def _parts(inputs: RawInputs, width: int) -> Iterator[RawInputs]:
    """The rows in parts with few enough results, which are [N, width]."""
    size = max(1, MAX_CELLS // width)
    return (between(inputs, start, start + size) for start in range(0, count(inputs), size))


def _rows(model: Model, data: DataFile, *, labels: bool) -> RawSet:
    """The rows of a file, with its columns matched to those of the training file."""
    raw = rows_as(data.path, _options(model, data, labels=labels), data.cache)
    for message in raw.messages:
        data.report(message)
    return replace(raw, features=model.network.features)


def _pieces(
    model: Model, data: DataFile, compute: Callable[[RawInputs], object]
) -> Iterator[RawInputs]:
    """The rows of a file without labels, in one piece or several, of which the first is read here.

    `compute` is called with no rows, so that its errors are raised before a line is written.
    """
    reported = set[str]()

    def inputs(raw: RawSet) -> RawInputs:
        for message in raw.messages:
            if message not in reported:
                data.report(message)
        reported.update(raw.messages)
        return raw.inputs

    pieces = map(inputs, pieces_as(data.path, _options(model, data, labels=False), data.cache))
    first = next(pieces)
    compute(between(first, 0, 0))
    return itertools.chain([first], pieces)


def _options(model: Model, data: DataFile, *, labels: bool) -> ReadOptions:
    return model.fitted.options(replace(data.options, labels=labels, shape=model.input_shape))


def _label(value: Any) -> str:
    return printable(label_text(value))


def _chosen(row: Any) -> str:
    return ",".join(map(str, np.flatnonzero(row)))


def _xmc_lines(outputs: int, columns: NDArray[np.int64], probabilities: Floats) -> Iterator[str]:
    """Yield a sparse matrix [N, C] as text, with ascending columns, counted from 0."""
    yield f"{len(columns)} {outputs}"
    for row, values in zip(columns, probabilities, strict=True):
        yield " ".join(f"{row[n]}:{values[n]:.6g}" for n in np.argsort(row))


def write_lines(lines: Iterable[str], output: str | None) -> None:
    """Print `lines`, or write them to the file `output`; SaveError if that fails."""
    ended = (f"{line}\n" for line in lines)
    try:
        if output is None:
            sys.stdout.writelines(ended)
            sys.stdout.flush()
        else:
            with Path(output).open("w", encoding="utf-8") as file:
                file.writelines(ended)
    except BrokenPipeError:  # the reader has closed the pipe
        raise
    except OSError as error:
        where = output or "standard output"
        raise SaveError(f"{where}: cannot write the results: {error.strerror}") from None
