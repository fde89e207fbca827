"""A model file on a data file: `hogbatch evaluate` and `hogbatch predict`, with NumPy alone."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from hogbatch.checkpoint import Model, load_model
from hogbatch.data.cache import DataCache
from hogbatch.data.encode import encode
from hogbatch.data.load import inputs_for
from hogbatch.data.raw import RawSet
from hogbatch.errors import SaveError, UsageError
from hogbatch.kernels import load
from hogbatch.kernels.contract import HITS, LOSS, SKIPPED, TOTALS
from hogbatch.losses import LOSSES, in_units, metric_values


def evaluate_file(
    model_path: str, data: str, label: str | None, cache: DataCache | None = None
) -> dict[str, float]:
    """Rows, loss per row and metrics of a model on a file with labels.

    The labels are read as the training file's were; DataError for one that did not occur there.
    """
    model = load_model(model_path)
    raw = _rows(model, data, label, cache)
    labels = encode(raw, model.encoding)
    loss, totals = LOSSES[model.network.loss], np.zeros(TOTALS)
    scores = model.scores(raw.inputs)
    load("reference").loss_and_hits(
        loss.kind, labels, np.arange(raw.rows), model.network.outputs, scores, totals
    )
    counted = raw.rows - int(totals[SKIPPED])
    mean = totals[LOSS] / counted if counted else float("nan")
    metrics = metric_values(loss, totals[HITS:].tolist(), counted)
    measured = in_units(loss, mean, metrics, model.encoding.scale)
    return {"rows": raw.rows, "loss": measured.loss, **measured.metrics}


def predict_file(
    model_path: str,
    data: str,
    label: str | None,
    cache: DataCache | None = None,
    *,
    proba: bool,
    top: int | None,
) -> Iterator[str]:
    """One line per row: the label, its probabilities, or the `top` labels with their scores."""
    model = load_model(model_path)
    inputs = _rows(model, data, label, cache).inputs
    if proba:
        rows = model.predict_proba(inputs)
        return (" ".join(f"{value:.6g}" for value in row) for row in rows)
    if top is not None:
        if model.network.outputs == 1:
            raise UsageError(
                "--top needs a model with several classes or labels; this has one output"
            )
        return _top_lines(model, model.top(inputs, top))
    if model.encoding.kind == "multilabel":
        chosen = model.predict(inputs)
        return (",".join(map(str, np.flatnonzero(row))) for row in chosen)
    return (f"{value:.9g}" for value in model.predict(inputs))


def _rows(model: Model, data: str, label: str | None, cache: DataCache | None) -> RawSet:
    """The rows of a file, read as the training file was, with its label column or another."""
    label = label or model.about.get("label") or None
    features, base = model.network.features, model.index_base
    return inputs_for(data, features, index_base=base, label=label, cache=cache)


def _top_lines(
    model: Model, columns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> Iterator[str]:
    """Labels as the training file had them, best first."""
    names = np.array(model.encoding.classes) if model.encoding.classes else None
    for row in columns:
        yield ",".join(f"{label:g}" for label in (row if names is None else names[row]))


def write_lines(lines: Iterable[str], output: str | None) -> None:
    """Print `lines`, or write them to the file `output`; SaveError if that fails."""
    try:
        if output is None:
            print(*lines, sep="\n", flush=True)
        else:
            Path(output).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except BrokenPipeError:  # whoever read it has had enough
        raise
    except OSError as error:
        where = output or "standard output"
        raise SaveError(f"{where}: cannot write the results: {error.strerror}") from None
