"""Weights of the servers' changes in a merge, and factors of their sum.

Servers train on their own copies of the model, and then their changes are merged: added ("sum"),
averaged by updates as in Adaptive SGD ("average": Ma & Rusu et al. 2021, "Adaptive Elastic Training
for Sparse Deep Learning on Heterogeneous Multi-GPU Servers", arXiv 2110.07029), or added and scaled
("adasum": Maleki et al. 2020, "Scaling Distributed Training with Adaptive Summation", arXiv
2006.02924).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DELTA: Final = 0.1  # of the perturbation
NORM_THRESHOLD: Final = 0.1  # largest norm per parameter with which weights are perturbed


@dataclass(frozen=True, slots=True)
class MegaBatch:
    """What one server did in a mega-batch."""

    updates: int
    batch_size: int  # rows
    norm: float = 0.0  # Euclidean norm of its model over the number of parameters


def merge_weights(
    done: Sequence[MegaBatch], *, delta: float = DELTA, threshold: float = NORM_THRESHOLD
) -> list[float]:
    """Weights of the servers' changes in the merged model (algorithm 2).

    In proportion to the updates, or to the batch sizes if all did equally many. While the models
    are small, `norm` below `threshold` for all, the weight of the server with the most updates is
    increased by the factor 1 + `delta` and that with the fewest decreased by 1 - `delta`: without
    this, equal servers would stay in one neighbourhood. Servers without updates have weight 0.
    """
    if not any(each.updates for each in done):
        return [0.0] * len(done)
    counts = [each.updates for each in done]
    equal = len(set(counts)) == 1
    shares = [each.batch_size if equal else each.updates for each in done]
    weights = [share / sum(shares) for share in shares]
    if len(done) > 1 and all(each.norm < threshold for each in done):
        weights[counts.index(max(counts))] *= 1 + delta
        # with equal counts the last server, so that two are changed
        weights[len(counts) - 1 - counts[::-1].index(min(counts))] *= 1 - delta
    return weights


def sum_scales(squares: Sequence[Sequence[float]], of_sum: Sequence[float]) -> list[float]:
    """Factors of the sum of changes by the rule "adasum", one for each tensor.

    `squares`[N][T] are the squared norms of the changes, `of_sum`[T] those of their sum. The
    published rule merges servers in pairs, with a factor of 1 - cos/2 for changes of equal length
    with the angle cosine cos. This one is symmetric in all servers: the sum of the squares over the
    square of the sum, which is 1/(1 + cos) for two. It is never above 1: changes that cancel each
    other are noise.
    """
    return [
        min(1.0, sum(each) / total) if total > 0.0 else 1.0
        for *each, total in zip(*squares, of_sum, strict=True)
    ]
