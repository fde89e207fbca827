"""Metrics of the best columns of each row, for evaluations of a model file.

Propensity-scored precision gives hits on rare labels more weight than on common labels (Jain,
Prabhu & Varma 2016, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking &
Other Missing Label Applications"): the rarer a label, the more likely it is missing from rows to
which it applies.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import Loss
from hogbatch.data import csr
from hogbatch.data.batch import Labels

CUTOFFS: Final = (1, 3, 5)  # values of k of the metrics at k
A, B = 0.55, 1.5  # from the paper, for data sets without values of their own


class Frequencies(NamedTuple):
    """The number of occurrences of each label in training."""

    rows: int  # N
    of_label: NDArray[np.int64]  # [C]: rows that have the label


def top_metrics(
    loss: Loss,
    top: NDArray[np.int64],
    labels: Labels,
    outputs: int,
    frequencies: Frequencies | None = None,
) -> dict[str, float]:
    """The metrics of `loss` from the best columns top[N, k] of a model with C = `outputs`.

    With label lists, precision, and propensity-scored precision if the `frequencies` are known;
    else accuracy.
    """
    rows = len(top)
    true = csr.rows_of(labels.indptr) * outputs + labels.indices
    correct = np.isin(np.arange(rows)[:, np.newaxis] * outputs + top, true)
    if not loss.label_lists:
        return loss.metric_values([float(correct[:, 0].sum())], rows)
    results = loss.metric_values([float(correct[:, :k].sum()) / k for k in CUTOFFS], rows)
    if frequencies is None:
        return results
    propensity = propensities(frequencies)
    return results | {f"PSP@{k}": psp_at(k, top, labels, propensity) for k in CUTOFFS}


def propensities(frequencies: Frequencies) -> NDArray[np.float64]:
    """The probability that each label is observed on a row to which it applies, float64[C].

    1 / (1 + c e^(-A log(N_l + B))), c = (log N - 1)(B + 1)^A, from N training rows of which N_l
    have label l. The values are in (0, 1]. All are 1 up to N = e, which is too few rows for an
    estimate.
    """
    c = max(np.log(max(frequencies.rows, 1)) - 1, 0.0) * (B + 1) ** A
    result: NDArray[np.float64] = 1 / (1 + c * (frequencies.of_label + B) ** -A)
    return result


def psp_at(
    k: int, top: NDArray[np.integer], labels: Labels, propensity: NDArray[np.float64]
) -> float:
    """PSP@k, in [0, 1], of the best columns top[N, >= k] of N rows, best first.

    The sum of 1 / propensity[C] over correct columns, divided by the maximum that k columns per row
    could reach, each summed over all rows, as in the Extreme Classification Repository. The columns
    of a row are distinct, and so are its labels. nan if no row has a label.
    """
    weights = 1 / propensity
    rows = len(labels.indptr) - 1
    owners = np.repeat(np.arange(rows), np.diff(labels.indptr))
    gains = weights[labels.indices]
    by_gain = np.lexsort((-gains, owners))
    rank = np.arange(len(owners)) - labels.indptr[owners]
    reachable = gains[by_gain[rank < k]].sum()
    chosen = top[:, :k]
    cells = np.arange(rows)[:, None] * len(propensity) + chosen
    hit = np.isin(cells, owners * len(propensity) + labels.indices)
    reached = weights[chosen[hit]].sum()
    return float(reached / reachable) if reachable else float("nan")
