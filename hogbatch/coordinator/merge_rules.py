"""Weights of the servers' changes in a merge, and factors of their sum.

Servers train on their own copies of the model, and then their changes are merged: added ("sum"),
averaged by updates as in Adaptive SGD ("average": Ma & Rusu et al. 2021, "Adaptive Elastic Training
for Sparse Deep Learning on Heterogeneous Multi-GPU Servers", arXiv 2110.07029), or added and scaled
("adasum": Maleki et al. 2020, "Scaling Distributed Training with Adaptive Summation", arXiv
2006.02924).
"""

from collections.abc import Sequence


def merge_weights(updates: Sequence[int], batch_sizes: Sequence[int]) -> list[float]:
    """Weights of the servers' changes in the merged model, by what each server did.

    In proportion to the updates, or to the batch sizes if all did equally many (Adaptive SGD,
    algorithm 2; without its perturbation of two weights by a tenth while the models are small).
    Servers without updates have weight 0.
    """
    if not any(updates):
        return [0.0] * len(updates)
    shares = batch_sizes if len(set(updates)) == 1 else updates
    return [share / sum(shares) for share in shares]


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
