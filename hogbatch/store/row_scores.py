"""The scores of the rows that were evaluated last, in shared memory.

Workers write them, and the coordinator computes metrics from them. If a worker has died, another
one evaluates its rows again and overwrites what it has written.
"""

from collections.abc import Mapping

from hogbatch.config.metrics import keeps_all_scores
from hogbatch.kernels.contract import TOP, RowScores
from hogbatch.store.layout import Shape
from hogbatch.store.segment import Segment


def fields(rows: int, outputs: int) -> Mapping[str, tuple[str, Shape]]:
    """The arrays for sets of up to `rows` rows, for :func:`hogbatch.store.layout.arrange`."""
    whole = keeps_all_scores(rows, outputs)
    return {
        "scores/all": ("<f4", (rows, outputs) if whole else (0, 0)),
        "scores/best": ("<i4", (0, 0) if whole else (rows, TOP)),
    }


def row_scores(segment: Segment) -> RowScores:
    return RowScores(segment.array("scores/all"), segment.array("scores/best"))
