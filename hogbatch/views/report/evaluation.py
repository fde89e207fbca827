"""Computes the predictions of a saved model on the test set of its run, if that is cheap."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.data.batch import Examples
from hogbatch.data.encode import label_text
from hogbatch.data.load import LoadedData
from hogbatch.data.samples import SAMPLES
from hogbatch.data.source import ARRAYS
from hogbatch.events.names import CONFIG, MODEL
from hogbatch.kernels.blocks import NUMPY_KERNELS, count
from hogbatch.kernels.contract import LOSS, SKIPPED, TOTALS
from hogbatch.model.file import load_model
from hogbatch.model.trained import Floats, Model
from hogbatch.views.console import Console, PlainConsole
from hogbatch.views.report.reported import Bin, LeftOut, Quality

MAX_LABELS: Final = 20
MAX_BYTES: Final = 100_000_000  # of the data files
MAX_MULTIPLICATIONS: Final = 1e11  # one or two seconds on a few cores
BINS: Final = 10
TOLERANCE: Final = 1e-3  # between the loss that the run has recorded and that found here
CHANGED: Final = "the data are not those of the run any more."


def measure(
    run_dir: Path,
    test_loss: float,
    test_rows: int,
    read_data: Callable[[TrainConfig, Console], LoadedData],
) -> Quality | LeftOut | None:
    """The predictions of the saved model of a run, or why they are left out.

    None if the model has neither classes nor two labels, or more than MAX_LABELS. `test_loss` of
    `test_rows` was recorded for the saved model; other data are recognised by it. Errors as of
    `load_model` and `read_data`, OSError, MemoryError.
    """
    model = load_model(run_dir / MODEL)
    if model.encoding.kind not in ("binary", "classes") or model.encoding.outputs > MAX_LABELS:
        return None
    config = merge_sources({"quiet": True}, run_dir / CONFIG)
    if problem := _unreadable(config):
        return LeftOut(problem)
    weights = sum(tensor.size for tensor in model.tensors.values())
    if weights * test_rows > MAX_MULTIPLICATIONS:
        return LeftOut("the predictions would take long; hogbatch evaluate computes the metrics.")
    data = read_data(config, PlainConsole(quiet=True))
    if data.test is None or not _same(model, data, test_rows):
        return LeftOut(CHANGED)
    # the rows are scaled and encoded already
    plain = replace(model, scaler=None, table=None, feature_names=None)
    scores: Floats = plain.scores(data.test.inputs)
    loss = _loss(model, data.test, scores)
    if not math.isclose(loss, test_loss, rel_tol=TOLERANCE, abs_tol=TOLERANCE**2):
        return LeftOut(CHANGED)
    return quality_of(model, scores, data.test.labels.values.astype(np.int64))


def _unreadable(config: TrainConfig) -> str | None:
    """Why the data of a run cannot be read again cheaply, if they cannot."""
    if config.data == ARRAYS:
        return "the run was trained on arrays in Python."
    size = 0
    for name in filter(None, (config.data, config.test)):
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


def _same(model: Model, data: LoadedData, test_rows: int) -> bool:
    """Whether the data have the labels, features and number of test rows of the run."""
    assert data.test is not None
    return (
        data.encoding == model.encoding
        and data.test.features == model.network.features
        and count(data.test.inputs) == test_rows
    )


def _loss(model: Model, test: Examples, scores: Floats) -> float:
    """The mean loss of the rows whose loss is finite; nan if there are none."""
    totals, rows = np.zeros(TOTALS), len(scores)
    labels, width = test.labels, scores.shape[1]
    NUMPY_KERNELS.loss_and_metrics(model.loss.kind, labels, np.arange(rows), width, scores, totals)
    counted = rows - int(totals[SKIPPED])
    return float(totals[LOSS] / counted) if counted else math.nan


def quality_of(model: Model, scores: Floats, true: NDArray[np.int64]) -> Quality:
    """The confusion matrix of scores[N, C] of rows with labels true[N], and the calibration."""
    labels = model.encoding.classes
    predicted: NDArray[Any] = model.loss.predict(scores)
    size = len(labels)
    counts = np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)
    bins: tuple[Bin, ...] = ()
    if size == 2 and model.loss.has_probabilities:
        bins = calibration_bins(model.loss.probabilities(scores)[:, -1], true)
    confusion = tuple(tuple(int(each) for each in row) for row in counts)
    return Quality(tuple(map(label_text, labels)), confusion, bins)


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
