"""Computes the predictions of a saved model on held-out rows of its run, if that is cheap."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import OfNumbers
from hogbatch.config.sets import SetName
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.data import csr
from hogbatch.data.batch import Examples
from hogbatch.data.encode import Encoding, label_text
from hogbatch.data.load import LoadedData
from hogbatch.data.order import take
from hogbatch.data.samples import SAMPLES
from hogbatch.data.source import ARRAYS
from hogbatch.events.names import CONFIG, MODEL
from hogbatch.kernels.blocks import count
from hogbatch.model.file import load_model
from hogbatch.model.importances import Importance, importances_of
from hogbatch.model.prediction import evaluate_rows
from hogbatch.model.trained import Floats, Model
from hogbatch.views.console import Console, PlainConsole
from hogbatch.views.report.reported import (
    Bin,
    ClassResult,
    LeftOut,
    ManyClasses,
    Numbers,
    Predictions,
    Quality,
    Residuals,
)

MAX_LABELS: Final = 20  # of a confusion matrix, or targets in a table
MAX_BYTES: Final = 100_000_000  # of the data files
MAX_MULTIPLICATIONS: Final = 1e11  # one or two seconds on a few cores
REPEATS: Final = 5  # of each column that is shuffled
MIN_SHUFFLED: Final = 100  # rows
BINS: Final = 10
MIN_ROWS: Final = 5  # of a class among the worst
MAX_WORST: Final = 20
MAX_POINTS: Final = 500
OUTER: Final = (0.01, 0.99)  # quantiles of residuals; larger ones are in the outer bins
RESIDUAL_BINS: Final = 20
TOLERANCE: Final = 1e-3  # between the loss that the run has recorded and that found here
CHANGED: Final = "the data are not those of the run any more."


def measure(
    run_dir: Path,
    name: SetName,
    recorded: float,
    rows: int,
    read_data: Callable[[TrainConfig, Console], LoadedData],
) -> tuple[Predictions | None, tuple[Importance, ...]]:
    """The predictions of the saved model of a run on set `name`, or why they are left out.

    The second result are the importances of columns.

    None if the model has label lists. The loss `recorded` of `rows` rows is that of the saved
    model; other data are recognised by it. Errors as of `load_model` and `read_data`, OSError,
    MemoryError.
    """
    model = load_model(run_dir / MODEL)
    if model.encoding.kind == "multilabel":
        return None, ()
    config = merge_sources({"quiet": True}, run_dir / CONFIG)
    if problem := _unreadable(config):
        return LeftOut(problem), ()
    weights = sum(tensor.size for tensor in model.tensors.values()) * len(model.members)
    if weights * rows > MAX_MULTIPLICATIONS:
        reason = "the predictions would take long; hogbatch evaluate computes the metrics."
        return LeftOut(reason), ()
    data = read_data(config, PlainConsole(quiet=True))
    held_out = data.sets.get(name)
    if held_out is None or not _same(model, data.encoding, held_out, rows):
        return LeftOut(CHANGED), ()
    plain = model.plain
    loss = evaluate_rows(plain, held_out)["loss"]
    if not math.isclose(loss, recorded, rel_tol=TOLERANCE, abs_tol=TOLERANCE**2):
        return LeftOut(CHANGED), ()
    predictions = _predictions(plain, held_out, model.target_names)
    return replace(predictions, rows_of=name), importances(model, held_out, weights)


def importances(model: Model, held_out: Examples, weights: int) -> tuple[Importance, ...]:
    """The importances of the columns of a table, on as many held-out rows as are cheap."""
    if model.table is None:
        return ()
    passes = REPEATS * len(model.table.columns)
    rows = min(held_out.rows, int(MAX_MULTIPLICATIONS / (weights * passes)))
    if rows < min(held_out.rows, MIN_SHUFFLED):
        return ()
    chosen = np.linspace(0, held_out.rows - 1, rows).astype(np.int64)
    inputs: Any = csr.rows(held_out.inputs, chosen)
    labels = take(held_out.labels, chosen, held_out.targets)
    some = Examples(inputs, labels, held_out.features)
    return tuple(importances_of(model, some, REPEATS))


def _predictions(
    model: Model, held_out: Examples, targets: Sequence[str]
) -> Quality | ManyClasses | Numbers:
    """The predictions of a model without scaling and encoding."""
    inputs, labels, encoding = held_out.inputs, held_out.labels.values, model.encoding
    if isinstance(model.loss, OfNumbers):
        predicted = model.predict(inputs)
        true = encoding.numbers_of(labels.reshape(predicted.shape))
        if len(targets) == 1:
            return numbers_of(predicted, true)
        return _of_targets(targets, predicted, true)
    classes = labels.astype(np.int64)
    if encoding.outputs > MAX_LABELS:
        names = list(map(label_text, encoding.classes))
        return classes_of(names, model.top(inputs, 1)[:, 0], classes)
    return quality_of(model, model.scores(inputs), classes)


def _unreadable(config: TrainConfig) -> str | None:
    """Why the data of a run cannot be read again cheaply, if they cannot."""
    if config.data == ARRAYS:
        return "the run was trained on arrays in Python."
    size = 0
    for name in (config.data, *config.held_out_files.values()):
        path = Path(name)
        if name in SAMPLES and not path.exists():
            continue
        if not path.exists():
            return f"{name} is no longer there."
        if not (path.is_file() or path.is_dir()):
            return f"{name} can be read only once."
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        size += sum(file.stat().st_size for file in files)
    if size > MAX_BYTES:
        return f"the data have more than {MAX_BYTES // 1_000_000} MB; hogbatch evaluate reads them."
    return None


def _same(model: Model, encoding: Encoding, held_out: Examples, rows: int) -> bool:
    """Whether the data have the labels, features and number of held-out rows of the run."""
    return (
        encoding == model.encoding
        and held_out.features == model.network.features
        and count(held_out.inputs) == rows
    )


def quality_of(model: Model, scores: Floats, true: NDArray[np.int64]) -> Quality:
    """The confusion matrix of scores[N, C] of rows with labels true[N], and the calibration."""
    labels = model.encoding.classes
    predicted: NDArray[Any] = model.loss.predict(scores - model.score_threshold)
    size = len(labels)
    counts = np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)
    bins: tuple[Bin, ...] = ()
    if size == 2 and model.loss.has_probabilities:
        bins = calibration_bins(model.loss.probabilities(scores)[:, -1], true)
    confusion = tuple(tuple(int(each) for each in row) for row in counts)
    return Quality(tuple(map(label_text, labels)), confusion, bins)


def classes_of(
    labels: Sequence[str], predicted: NDArray[np.int64], true: NDArray[np.int64]
) -> ManyClasses:
    """The classes of rows[N] with the lowest fraction of correct predictions.

    Classes of fewer than MIN_ROWS rows are left out if there are others, as chance decides on them.
    """
    correct = predicted == true
    rows = np.bincount(true, minlength=len(labels))
    hits = np.bincount(true[correct], minlength=len(labels))
    fractions = hits / np.maximum(rows, 1)
    many = np.flatnonzero(rows >= min(MIN_ROWS, rows.max()))
    worst = many[np.lexsort((-rows[many], fractions[many]))][:MAX_WORST]
    found = []
    for n in worst.tolist():
        mistakes = np.bincount(predicted[(true == n) & ~correct], minlength=len(labels))
        most = int(mistakes.argmax())
        name = labels[most] if mistakes[most] else ""
        found.append(ClassResult(labels[n], int(rows[n]), int(hits[n]), name, int(mistakes[most])))
    present = rows > 0
    mean = float(fractions[present].mean())
    return ManyClasses(int(present.sum()), len(true), int(hits.sum()), mean, tuple(found))


def numbers_of(predicted: NDArray[np.float64], true: NDArray[np.float64]) -> Numbers:
    """Measures, some points and the distribution of the residuals of rows[N]."""
    residuals = predicted - true
    some = np.linspace(0, len(true) - 1, min(len(true), MAX_POINTS)).astype(np.int64)
    low, high = np.quantile(residuals, OUTER)
    counts, edges = np.histogram(residuals.clip(low, high), RESIDUAL_BINS)
    bins = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    points = zip(true[some].tolist(), predicted[some].tolist(), strict=True)
    return Numbers(
        _measures(predicted, true), tuple(points), tuple(Residuals(*each) for each in bins)
    )


def _measures(
    predicted: NDArray[np.float64], true: NDArray[np.float64]
) -> tuple[tuple[str, float], ...]:
    sizes, spread = np.abs(predicted - true), float(true.std())
    rmse = math.sqrt(float((sizes**2).mean()))
    measures = [
        ("root mean squared error (rmse)", rmse),
        ("rmse of the mean of the true numbers", spread),
        ("mean absolute error", float(sizes.mean())),
        ("median absolute error", float(np.median(sizes))),
    ]
    if spread:
        measures.append(("R²", 1.0 - (rmse / spread) ** 2))
    return tuple(measures)


def _of_targets(
    names: Sequence[str], predicted: NDArray[np.float64], true: NDArray[np.float64]
) -> Numbers:
    """The measures of the first targets of rows[N, T], each in its own unit."""
    columns = zip(names, predicted.T[:MAX_LABELS], true.T[:MAX_LABELS], strict=False)
    measures = [
        (f"{name}: {measure}", value)
        for name, *column in columns
        for measure, value in _measures(*column)
    ]
    return Numbers(tuple(measures), (), ())


def calibration_bins(probabilities: Floats, true: NDArray[np.int64]) -> tuple[Bin, ...]:
    """Rows in BINS intervals of equal width by their probabilities [N]; empty ones are left out."""
    indices = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    bins = []
    for index in range(BINS):
        inside = indices == index
        if rows := int(inside.sum()):
            mean = float(probabilities[inside].mean(dtype=np.float64))
            bins.append(Bin(mean, float(true[inside].mean()), rows))
    return tuple(bins)
