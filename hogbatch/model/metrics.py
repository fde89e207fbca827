"""Propensity-scored precision: a hit on a rare label counts for more than one on a common label.

Jain, Prabhu & Varma 2016, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking
& Other Missing Label Applications": the rarer a label, the likelier that it is missing where it
would be right.
"""

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Labels

A, B = 0.55, 1.5  # the paper's, for all but some sets that give their own


def propensities(labels: Labels, outputs: int, a: float = A, b: float = B) -> NDArray[np.float64]:
    """How likely each label is to be seen where it is right, float64[C] in (0, 1].

    1 / (1 + c e^(-a log(N_l + b))), c = (log N - 1)(b + 1)^a, from N training rows of which N_l
    have label l < C = `outputs`. Up to N = e, too few rows to tell, all are 1.
    """
    rows = len(labels.indptr) - 1
    counts = np.bincount(labels.indices, minlength=outputs)
    c = max(np.log(max(rows, 1)) - 1, 0.0) * (b + 1) ** a
    result: NDArray[np.float64] = 1 / (1 + c * (counts + b) ** -a)
    return result


def psp_at(
    k: int, top: NDArray[np.integer], labels: Labels, propensity: NDArray[np.float64]
) -> float:
    """PSP@k, in [0, 1], of the best columns top[N, >= k] of N rows, best first.

    The sum over correct columns of 1 / propensity[C], over the greatest that k columns a row could
    reach, each summed over all rows, as the Extreme Classification Repository does. Columns of a
    row are distinct, and so are the labels of a row. nan if no row has a label.
    """
    weights = 1 / propensity
    rows = len(labels.indptr) - 1
    owners = np.repeat(np.arange(rows), np.diff(labels.indptr))
    gains = weights[labels.indices]
    dearest_first = np.lexsort((-gains, owners))
    rank = np.arange(len(owners)) - labels.indptr[owners]
    reachable = gains[dearest_first[rank < k]].sum()
    chosen = top[:, :k]
    cells = np.arange(rows)[:, None] * len(propensity) + chosen
    hit = np.isin(cells, owners * len(propensity) + labels.indices)
    reached = weights[chosen[hit]].sum()
    return float(reached / reachable) if reachable else float("nan")
