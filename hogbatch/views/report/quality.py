"""Quality of a model's predictions on its test set, as a figure and a table."""

from hogbatch.views.report.figure import Curve, Look, Plot, ReportTable, Style
from hogbatch.views.report.reported import Quality


def confusion_table(quality: Quality) -> ReportTable:
    """Test rows by their true label, in rows, and their predicted label, in columns."""
    total = sum(map(sum, quality.confusion))
    correct = sum(row[n] for n, row in enumerate(quality.confusion))
    rows = tuple(
        (label, *(f"{count:,}" for count in counts), f"{counts[n] / max(1, sum(counts)):.1%}")
        for n, (label, counts) in enumerate(zip(quality.labels, quality.confusion, strict=True))
    )
    return ReportTable(
        "Predictions of the saved model on the test set",
        ("true \\ predicted", *quality.labels, "correct"),
        rows,
        frozenset(range(1, len(quality.labels) + 2)),
        note=f"{correct:,} of {total:,} test rows are predicted correctly "
        f"({correct / max(1, total):.2%}).",
    )


def calibration(quality: Quality) -> Plot:
    """The observed frequency of the second label against its predicted probability."""
    points = tuple((each.predicted, each.observed) for each in quality.bins)
    return Plot(
        "Calibration on the test set",
        "predicted probability",
        "observed fraction",
        (Curve(f"label {quality.labels[-1]}", (points,), Style.number(0)),),
        Look.FROM_ZERO,
        note=f"Test rows in ten bins by the predicted probability of label {quality.labels[-1]}; "
        "on the dashed line, predictions are as frequent as they say.",
        diagonal=True,
    )


def bin_table(quality: Quality) -> ReportTable:
    """The bins of the calibration."""
    return ReportTable(
        "Bins of the calibration",
        ("predicted", "observed", "test rows"),
        tuple((f"{b.predicted:.3f}", f"{b.observed:.3f}", f"{b.rows:,}") for b in quality.bins),
        frozenset(range(3)),
    )
