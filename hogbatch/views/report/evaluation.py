"""Computes the predictions of a saved model on held-out rows of its run, if that is cheap."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import OfNumbers
from hogbatch.config.sets import SetName
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.data import folds
from hogbatch.data.batch import Examples
from hogbatch.data.encode import label_text
from hogbatch.data.load import LoadedData
from hogbatch.data.samples import SAMPLES
from hogbatch.data.source import ARRAYS
from hogbatch.errors import DataError
from hogbatch.events.names import CONFIG, MODEL
from hogbatch.kernels.contract import Floats
from hogbatch.model.file import load_model
from hogbatch.model.importances import Importance, importances_of
from hogbatch.model.prediction import evaluate_rows
from hogbatch.model.trained import Model
from hogbatch.views.console import Console, PlainConsole
from hogbatch.views.report.chart import Chart, chart_settings
from hogbatch.views.report.predictions import (
    calibration,
    class_table,
    confusion_table,
    measures,
    number_table,
    predicted_numbers,
    residuals,
)
from hogbatch.views.report.reported import Predictions, ReportTable

MAX_LABELS: Final = 20  # of a confusion matrix, or targets in a table
MAX_BYTES: Final = 100_000_000  # of the data files
MAX_MULTIPLICATIONS: Final = 1e11  # one or two seconds on a few cores
REPEATS: Final = 5  # of each column that is shuffled
MIN_SHUFFLED: Final = 100  # rows
TOLERANCE: Final = 1e-3  # between the loss that the run has recorded and that found here
CHANGED: Final = "the data are not those of the run any more."


def measure(
    run_dir: Path,
    name: SetName,
    recorded: float,
    rows: int,
    read_data: Callable[[TrainConfig, Console], LoadedData],
) -> Predictions:
    """The predictions of the saved model of a run on set `name`, and importances of columns.

    The model does not predict label lists. The loss `recorded` of `rows` rows is that of the saved
    model; other data are recognised by it. DataError if the predictions are left out, and errors as
    of `load_model` and `read_data`, OSError, MemoryError.
    """
    model = load_model(run_dir / MODEL)
    config = merge_sources({"quiet": True}, run_dir / CONFIG)
    _expect_readable(config)
    weights = sum(tensor.size for tensor in model.tensors.values()) * len(model.members)
    if weights * rows > MAX_MULTIPLICATIONS:
        raise DataError("the predictions would take long; hogbatch evaluate computes the metrics.")
    data = read_data(config, PlainConsole(quiet=True))
    held_out = data.sets.get(name)
    of_run = model.encoding, model.network.features, rows
    if held_out is None or of_run != (data.encoding, held_out.features, held_out.rows):
        raise DataError(CHANGED)
    plain = model.plain
    loss = evaluate_rows(plain, held_out)["loss"]
    if not math.isclose(loss, recorded, rel_tol=TOLERANCE, abs_tol=TOLERANCE**2):
        raise DataError(CHANGED)
    with chart_settings():
        shown = _shown(plain, held_out, model.target_names, name)
    return Predictions(shown, importances(model, held_out, weights))


def importances(model: Model, held_out: Examples, weights: int) -> tuple[Importance, ...]:
    """The importances of the columns of a table, on as many held-out rows as are cheap."""
    if model.table is None:
        return ()
    passes = REPEATS * len(model.table.columns)
    rows = min(held_out.rows, int(MAX_MULTIPLICATIONS / (weights * passes)))
    if rows < min(held_out.rows, MIN_SHUFFLED):
        return ()
    chosen = np.linspace(0, held_out.rows - 1, rows).astype(np.int64)
    return tuple(importances_of(model, folds.rows_of(held_out, chosen), REPEATS))


def _shown(
    model: Model, held_out: Examples, targets: Sequence[str], rows_of: SetName
) -> list[ReportTable | Chart]:
    """The predictions of a model without scaling and encoding."""
    inputs, encoding = held_out.inputs, model.encoding
    if isinstance(model.loss, OfNumbers):
        predicted = model.predict(inputs)
        true = encoding.numbers_of(held_out.labels.values.reshape(predicted.shape))
        if len(targets) > 1:
            return [number_table(_measures_of_targets(targets, predicted, true), rows_of)]
        return [
            number_table(measures(predicted, true), rows_of),
            predicted_numbers(predicted, true, rows_of),
            residuals(predicted, true, rows_of),
        ]
    classes = held_out.labels.values.astype(np.int64)
    if encoding.outputs > MAX_LABELS:
        labels = list(map(label_text, encoding.classes))
        return [class_table(labels, model.top(inputs, 1)[:, 0], classes, rows_of)]
    return of_few_classes(model, model.scores(inputs), classes, rows_of)


def of_few_classes(
    model: Model, scores: Floats, true: NDArray[np.int64], rows_of: SetName
) -> list[ReportTable | Chart]:
    """The confusion matrix of scores[N, C] of rows with labels true[N], and the calibration."""
    labels = list(map(label_text, model.encoding.classes))
    predicted: NDArray[np.int64] = model.loss.predict(scores - model.score_threshold)
    shown: list[ReportTable | Chart] = [confusion_table(labels, predicted, true, rows_of)]
    if len(labels) == 2 and model.loss.has_probabilities:
        shown += calibration(labels[1], model.loss.probabilities(scores)[:, -1], true, rows_of)
    return shown


def _measures_of_targets(
    names: Sequence[str], predicted: NDArray[np.float64], true: NDArray[np.float64]
) -> list[tuple[str, float]]:
    """The measures of the first targets of rows[N, T], each in its own unit."""
    columns = zip(names, predicted.T[:MAX_LABELS], true.T[:MAX_LABELS], strict=False)
    return [
        (f"{name}: {measure}", value)
        for name, *column in columns
        for measure, value in measures(*column)
    ]


def _expect_readable(config: TrainConfig) -> None:
    """DataError if the data of a run cannot be read again cheaply."""
    if config.data == ARRAYS:
        raise DataError("the run was trained on arrays in Python.")
    size = 0
    for name in (config.data, *config.held_out_files.values()):
        path = Path(name)
        if name in SAMPLES and not path.exists():
            continue
        if not path.exists():
            raise DataError(f"{name} is no longer there.")
        if not (path.is_file() or path.is_dir()):
            raise DataError(f"{name} can be read only once.")
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        size += sum(file.stat().st_size for file in files)
    if size > MAX_BYTES:
        limit = f"{MAX_BYTES // 1_000_000} MB"
        raise DataError(f"the data have more than {limit}; hogbatch evaluate reads them.")
