"""The table of metrics: one entry per metric, in the order of reports.

The formulas are in `hogbatch.model.metrics`.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final, Literal

from hogbatch.config.losses import Loss

CUTOFFS: Final = (1, 3, 5)  # values of k of the metrics at k
MAX_SCORES: Final = 1 << 24  # of a set of rows whose scores are kept for all outputs

Need = Literal["scores", "probabilities", "decisions", "frequencies"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, and for which models it can be computed."""

    name: str
    labels: tuple[str, ...]  # kinds of labels, as in `hogbatch.data.encode.Encoding.kind`
    need: Need | None = None  # in addition to the best columns of each row
    higher_is_better: bool = True


CLASSES: Final = ("binary", "classes")
NUMBERS: Final = ("real", "counts", "logs")

METRICS: Final = (
    Metric("log_loss", CLASSES, "probabilities", higher_is_better=False),
    Metric("accuracy", CLASSES),
    Metric("balanced_accuracy", CLASSES),
    Metric("f1", ("binary",)),
    Metric("f1_macro", CLASSES),
    Metric("rmse", NUMBERS, "scores", higher_is_better=False),
    Metric("mae", NUMBERS, "scores", higher_is_better=False),
    Metric("r2", NUMBERS, "scores"),
    *(Metric(f"P@{k}", ("multilabel",)) for k in CUTOFFS),
    *(Metric(f"nDCG@{k}", ("multilabel",)) for k in CUTOFFS),
    *(Metric(f"PSP@{k}", ("multilabel",), "frequencies") for k in CUTOFFS),
    Metric("f1_macro", ("multilabel",), "decisions"),
    Metric("auc", (*CLASSES, "multilabel"), "scores"),
    Metric("average_precision", (*CLASSES, "multilabel"), "scores"),
    Metric("brier", CLASSES, "probabilities", higher_is_better=False),
    Metric("calibration_error", CLASSES, "probabilities", higher_is_better=False),
)


TUNED: Final = ("f1", "balanced_accuracy")  # metrics by which a decision threshold is chosen
METRIC_NAMES: Final = tuple(dict.fromkeys(each.name for each in METRICS))


def ranking(name: str, metrics: Mapping[str, float]) -> float | None:
    """The metric called `name` as a number that is lower for better models, None if it is missing.

    It is at least 0: no metric whose higher values are better exceeds 1.
    """
    if (value := metrics.get(name)) is None:
        return None
    higher = next(each.higher_is_better for each in METRICS if each.name == name)
    return 1.0 - value if higher else value


def keeps_all_scores(rows: int, outputs: int) -> bool:
    """Whether the scores of all outputs are kept for a set, and not only the best columns."""
    return rows * outputs <= MAX_SCORES or outputs <= max(CUTOFFS)


def fitting(loss: Loss, *, scores: bool = True, frequencies: bool = True) -> tuple[Metric, ...]:
    """The metrics that can be computed for a model that was trained with `loss`.

    `scores`: the scores of all outputs are known, not only the best columns of each row.
    `frequencies`: the number of occurrences of each label in training is known.
    """
    known: Set[Need | None] = {
        None,
        *(("scores",) if scores else ()),
        *(("probabilities",) if scores and loss.has_probabilities else ()),
        *(("decisions",) if scores and loss.has_predictions else ()),
        *(("frequencies",) if frequencies else ()),
    }
    return tuple(each for each in METRICS if loss.encoding in each.labels and each.need in known)
