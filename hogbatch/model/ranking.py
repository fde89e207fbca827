"""The best labels by sums of the scores of a network, label vectors and nearest rows, on all cores.

The compiled kernels give the results that `hogbatch.model.trained` computes with NumPy alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs, read_only
from hogbatch.kernels.contract import Floats
from hogbatch.machine.threads import on_all_cores
from hogbatch.model.label_vectors import CELLS, NEAREST, LabelVectors, NearestRows

Lists = tuple[NDArray[np.int64], NDArray[np.int32]]  # indptr[N + 1] and indices, as in `Labels`

SHORTLIST: Final = 50  # labels of a row that are ranked with the network's scores, too
NONE: Final = np.zeros(1, np.int64), np.empty(0, np.int32)  # indptr and labels
NO_ROWS: Final = NearestRows(LabelVectors(*NONE, np.empty(0, np.float32)), *NONE)


class Ranked(NamedTuple):
    """The best labels of B rows by each of S sums, and what the loss of the sums needs."""

    columns: NDArray[np.int32]  # [B, S, k], best first; of equal scores, the first column
    scores: Floats  # [B, S, k]: theirs
    totals: NDArray[np.float64]  # [B, S]: sum of exp(score - highest); nan if one is not finite
    true: NDArray[np.float64]  # [B, S]: the sum of the true labels' scores

    @classmethod
    def of(cls, rows: int, sums: int, k: int) -> "Ranked":
        """Arrays of these sizes; the sums of true labels' scores are 0."""
        shape = rows, sums, k
        columns, scores = np.empty(shape, np.int32), np.empty(shape, np.float32)
        return cls(columns, scores, np.empty(shape[:2]), np.zeros(shape[:2]))


class Ranking:
    """Ranks blocks of up to `rows` rows, whose scores[B, C] `score` computes.

    Each of sums[S, 4] has a factor, 0 or 1, of these scores, a factor of the products with the
    label vectors, the number of those of powers[P, C] that the products are multiplied by, and a
    factor of the scores by nearest rows.
    """

    def __init__(
        self,
        score: Callable[[Inputs, Floats], None],
        vectors: LabelVectors,
        nearest: NearestRows | None,
        sums: Floats,
        powers: Floats,
        rows: int,
    ) -> None:
        self.rows = max(1, min(CELLS // powers.shape[1], rows))
        self._score = score
        self._given = _sources(vectors, nearest), sums, powers
        # New memory for each block would take longer.
        self._space = np.empty((self.rows, powers.shape[1]), np.float32)

    def __call__(self, rows: Inputs, true: Lists, k: int) -> Ranked:
        """Rank the labels of CSR rows with the lists `true` of true labels."""
        from hogbatch.kernels.cpu.label_vectors import rank_sums

        count, sums = len(rows.indptr) - 1, len(self._given[1])
        scores = self._space[:count]
        self._score(rows, scores)
        ranked = Ranked.of(count, sums, k)
        lists = read_only(true[0]), read_only(true[1])
        inputs = Inputs(*map(read_only, rows))
        on_all_cores(partial(rank_sums, inputs, lists, *self._given, scores, ranked), count)
        return ranked


class Shortlist:
    """Ranks, of each row, only the labels that label vectors and nearest rows rank highest.

    `hidden` computes the inputs[B, H] of the `last` layer. Called as a `Ranking` with one sum,
    whose totals are over the ranked labels.
    """

    rows = 1 << 14

    def __init__(
        self,
        hidden: Callable[[Inputs], Floats],
        last: tuple[Floats, Floats],
        vectors: LabelVectors,
        nearest: NearestRows | None,
    ) -> None:
        self._hidden = hidden
        self._last = read_only(last[0]), read_only(last[1])
        self._sources = _sources(vectors, nearest)

    def __call__(self, rows: Inputs, true: Lists, k: int) -> Ranked:
        """Rank labels of CSR rows; those of `true` are not needed."""
        from hogbatch.kernels.cpu.label_vectors import rank_shortlist

        count, outputs = len(rows.indptr) - 1, len(self._last[1])
        limit = min(max(SHORTLIST, 2 * k), outputs)
        ranked = Ranked.of(count, 1, k)
        given = Inputs(*map(read_only, rows)), self._sources, self._hidden(rows), self._last
        on_all_cores(partial(rank_shortlist, *given, limit, ranked), count)
        return ranked


def _sources(
    vectors: LabelVectors, nearest: NearestRows | None
) -> tuple[LabelVectors, NearestRows, int]:
    """Arguments of kernels, which are compiled for one type, also without nearest rows."""
    of_rows, *lists = NO_ROWS if nearest is None else nearest
    own, rows = (LabelVectors(*map(read_only, each)) for each in (vectors, of_rows))
    return own, NearestRows(rows, *map(read_only, lists)), NEAREST
