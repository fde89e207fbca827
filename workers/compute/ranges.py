"""Division of a lease among the threads of a CPU worker."""

from itertools import pairwise


def cut(rows: int, batch_size: int, threads: int) -> list[tuple[int, int]]:
    """Divide [0, rows) into at most `threads` ranges of whole batches.

    Only the last batch may be incomplete.
    """
    batches = -(-rows // batch_size)
    edges = [min(rows, batches * t // threads * batch_size) for t in range(threads + 1)]
    return [(a, b) for a, b in pairwise(edges) if a < b]
