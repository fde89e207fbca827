"""Tables and figures of what a saved model predicts for the rows of a held-out set.

`rows_of` is the name of the set.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.sets import SetName
from hogbatch.views.console import figure
from hogbatch.views.report.chart import LARGEST, Chart, colour
from hogbatch.views.report.reported import ReportTable

BINS: Final = 10
MIN_ROWS: Final = 5  # of a class among the worst
MAX_WORST: Final = 20
MAX_POINTS: Final = 500
OUTER: Final = (0.01, 0.99)  # quantiles of residuals; larger ones are in the outer bins
RESIDUAL_BINS: Final = 20

Classes = NDArray[np.int64]  # the index of a label for each row
Numbers = NDArray[np.float64]


def confusion_table(
    labels: Sequence[str], predicted: Classes, true: Classes, rows_of: SetName
) -> ReportTable:
    """Rows by their true label, in rows, and their predicted label, in columns."""
    size, total = len(labels), len(true)
    counts = np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)
    correct = int(counts.trace())
    return ReportTable(
        f"Predictions of the saved model on the {rows_of} set",
        ("true \\ predicted", *labels, "correct"),
        tuple(
            (label, *(f"{each:,}" for each in row), f"{row[n] / max(1, row.sum()):.1%}")
            for n, (label, row) in enumerate(zip(labels, counts, strict=True))
        ),
        frozenset(range(1, size + 2)),
        note=_correct_rows(correct, total, rows_of) + ".",
        shades=tuple(map(tuple, (counts / max(1, counts.max())).tolist())),
    )


def _correct_rows(correct: int, total: int, rows_of: SetName) -> str:
    fraction = correct / max(1, total)
    return f"{correct:,} of {total:,} {rows_of} rows are predicted correctly ({fraction:.2%})"


def calibration(
    label: str, probabilities: NDArray[Any], true: Classes, rows_of: SetName
) -> list[ReportTable | Chart]:
    """The observed frequency of the second label, `label`, against its predicted probability [N].

    Rows are in BINS intervals of equal width by their probabilities; empty ones are left out.
    """
    label = Chart.name(label)
    chart = Chart(
        f"Calibration on the {rows_of} set",
        "predicted probability",
        "observed fraction",
        f"{rows_of.capitalize()} rows in ten bins by the predicted probability of label "
        f"{label}; on the dotted line, predictions are as frequent as they say.",
    )
    indices = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    points, rows = [], []
    for index in np.unique(indices):
        inside = indices == index
        mean, observed = probabilities[inside].mean(dtype=np.float64), true[inside].mean()
        points.append((float(mean), float(observed)))
        rows.append((f"{mean:.3f}", f"{observed:.3f}", f"{inside.sum():,}"))
    chart.axes.plot([0, 1], [0, 1], ":", color="black")
    chart.line(f"label {label}", points, 0)
    header = ("predicted", "observed", f"{rows_of} rows")
    return [
        chart,
        ReportTable("Bins of the calibration", header, tuple(rows), frozenset(range(3))),
    ]


def class_table(
    labels: Sequence[str], predicted: Classes, true: Classes, rows_of: SetName
) -> ReportTable:
    """The classes of rows[N] with the lowest fraction of correct predictions.

    Classes of fewer than MIN_ROWS rows are left out if there are others, as chance decides on them.
    """
    correct = predicted == true
    rows = np.bincount(true, minlength=len(labels))
    hits = np.bincount(true[correct], minlength=len(labels))
    fractions = hits / np.maximum(rows, 1)
    many = np.flatnonzero(rows >= min(MIN_ROWS, rows.max()))
    worst = many[np.lexsort((-rows[many], fractions[many]))][:MAX_WORST]
    cells = []
    for n in worst.tolist():
        mistakes = np.bincount(predicted[(true == n) & ~correct], minlength=len(labels))
        most = int(mistakes.argmax())
        instead = f"{labels[most]} ({mistakes[most]:,})" if mistakes[most] else "-"
        cells.append((labels[n], f"{rows[n]:,}", f"{fractions[n]:.1%}", instead))
    present = rows > 0
    return ReportTable(
        f"The classes that the saved model predicts worst on the {rows_of} set",
        ("true", f"{rows_of} rows", "correct", "most often predicted instead (rows)"),
        tuple(cells),
        frozenset({1, 2}),
        note=f"{_correct_rows(int(hits.sum()), len(true), rows_of)}, and on average "
        f"{fractions[present].mean():.2%} of each of {present.sum():,} classes.",
    )


def measures(predicted: Numbers, true: Numbers) -> list[tuple[str, float]]:
    """Measures of the errors of predicted numbers [N], in the unit of the labels."""
    sizes, spread = np.abs(predicted - true), float(true.std())
    rmse = math.sqrt(float((sizes**2).mean()))
    found = [
        ("root mean squared error (rmse)", rmse),
        ("rmse of the mean of the true numbers", spread),
        ("mean absolute error", float(sizes.mean())),
        ("median absolute error", float(np.median(sizes))),
    ]
    return [*found, ("R²", 1.0 - (rmse / spread) ** 2)] if spread else found


def number_table(values: Iterable[tuple[str, float]], rows_of: SetName) -> ReportTable:
    rows = tuple((name, figure(value)) for name, value in values)
    title = f"Predictions of the saved model on the {rows_of} set"
    return ReportTable(title, ("measure", "value"), rows, frozenset({1}))


def predicted_numbers(predicted: Numbers, true: Numbers, rows_of: SetName) -> Chart:
    """Predicted against true numbers of some rows."""
    note = f"Up to 500 {rows_of} rows; on the dotted line, the prediction is the true number."
    chart = Chart("Predicted against true", "true number", "predicted number", note)
    some = np.linspace(0, len(true) - 1, min(len(true), MAX_POINTS)).astype(np.int64)
    points = np.stack([true[some], predicted[some]])
    points = points[:, (np.abs(points) <= LARGEST).all(axis=0)]
    if points.size:
        chart.axes.plot(*points, ".", color=colour(0), markersize=3)
        ends = [points.min(), points.max()]
        chart.axes.plot(ends, ends, ":", color="black")
    return chart


def residuals(predicted: Numbers, true: Numbers, rows_of: SetName) -> Chart:
    """The distribution of predicted minus true numbers."""
    note = "Predicted minus true number; the outer bars contain the largest 1 % of each side."
    chart = Chart("Residuals", "residual", f"{rows_of} rows", note)
    low, high = np.quantile(predicted - true, OUTER)
    counts, edges = np.histogram((predicted - true).clip(low, high), RESIDUAL_BINS)
    if np.abs(edges).max() <= LARGEST:
        chart.axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colour(0))
    return chart
