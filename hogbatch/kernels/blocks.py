"""The scores of a trained network, block by block of its outputs, with only NumPy.

A block is scored and summarised while it is in cache. Weights are read where they are, in real
widths.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs, RawInputs, count, csr_inputs, dense_inputs
from hogbatch.data.csr import rows_of
from hogbatch.kernels.contract import NORMALISED, Floats
from hogbatch.kernels.reference import NUMPY_KERNELS

OUTPUTS: Final = 2048  # of a block
NO_COLUMN: Final = np.iinfo(np.int64).max  # marks the absence of a column


class LayerWeights(NamedTuple):
    """The parameters of one layer, without padding, and its activation.

    The results have the precision of the parameters: float32 or float64.
    """

    weights: NDArray[Any]  # [K, H]; output-major [H, K]
    bias: NDArray[Any]  # [H]
    activation: int
    output_major: bool

    def astype(self, dtype: Any) -> "LayerWeights":
        """The same layer in another precision."""
        return self._replace(weights=self.weights.astype(dtype), bias=self.bias.astype(dtype))


def between(inputs: RawInputs, start: int, stop: int) -> RawInputs:
    """Views of rows [start, stop)."""
    if not len(inputs.indptr):
        dense: Any = inputs.dense[start:stop]  # of either precision
        return inputs._replace(dense=dense)
    indptr = inputs.indptr[start : stop + 1]
    stored = slice(indptr[0], indptr[-1])
    return csr_inputs(indptr - indptr[0], inputs.indices[stored], inputs.values[stored])


def hidden(layers: tuple[LayerWeights, ...], inputs: Inputs) -> Inputs:
    """The inputs of the last layer, for all rows; `inputs` themselves if it is the only one."""
    for layer in layers[:-1]:
        out = np.empty((count(inputs), len(layer.bias)), layer.bias.dtype)
        _apply(layer, inputs, out)
        inputs = dense_inputs(out)
    return inputs


def blocks(layer: LayerWeights, inputs: Inputs) -> Iterator[tuple[int, Floats]]:
    """The scores [N, <= OUTPUTS] of one block of outputs after the other, with its first column.

    They are scratch, valid until the next block.
    """
    rows, width = count(inputs), len(layer.bias)
    space = np.empty(rows * min(width, OUTPUTS), layer.bias.dtype)
    for first in range(0, width, OUTPUTS):
        part = slice(first, min(first + OUTPUTS, width))
        weights = layer.weights[part] if layer.output_major else layer.weights[:, part]
        block = layer._replace(weights=weights, bias=layer.bias[part])
        scores = space[: rows * len(block.bias)].reshape(rows, -1)
        _apply(block, inputs, scores)
        yield first, scores


def _apply(layer: LayerWeights, inputs: Inputs, out: Floats) -> None:
    width, weights, bias, kind = out.shape[1], layer.weights, layer.bias, layer.activation
    if len(inputs.indptr):
        rows = np.arange(count(inputs))
        NUMPY_KERNELS.csr_forward(inputs, rows, weights, bias, kind, width, out)
    elif layer.output_major:
        NUMPY_KERNELS.output_major_forward(inputs.dense, weights, bias, width, out)
    else:
        NUMPY_KERNELS.dense_forward(inputs.dense, weights, bias, kind, width, out)


def softmax_losses(total: Any, highest: Any, true: Any, labels: Any) -> NDArray[np.float64]:
    """The losses of rows: total = sum of exp(score - highest); true = sum over so many labels."""
    losses: NDArray[np.float64] = np.log(total) + highest - true / np.maximum(labels, 1)
    losses *= labels > 0
    return losses


class ScoreSummary:
    """The best scores of each of B rows, and sums over all of them, built up block by block.

    `kind` is the number of the loss whose sum over all scores is needed, None for no sum. `true`
    holds indptr[B + 1] and indices of the rows' true columns, whose scores are added up.
    """

    def __init__(
        self,
        rows: int,
        k: int,
        kind: int | None = None,
        true: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None,
    ) -> None:
        self.columns = np.full((rows, k), NO_COLUMN)  # of the k highest scores, best first
        self.best = np.full((rows, k), -np.inf, np.float32)  # those; of equal ones the first
        self.highest = np.full(rows, -np.inf, np.float32)
        self.finite = np.ones(rows, np.bool_)
        # Sum of exp(score - highest) if the loss is NORMALISED, else of log(1 + exp(score)).
        self.total = np.zeros(rows)
        self.true = np.zeros(rows)  # the sum of the true columns' scores
        self._kind = kind
        none = np.zeros(rows + 1, np.int64), np.empty(0, np.int32)
        indptr, self._indices = none if true is None else true
        self._labels = np.diff(indptr)
        self._owners = rows_of(indptr)

    def add(self, first: int, scores: Floats) -> None:
        """Add scores[B, n] of the columns from `first` on; may overwrite `scores`."""
        highest = scores.max(axis=1)
        self._rank(first, scores, highest)
        self.finite &= np.isfinite(highest) & np.isfinite(scores.min(axis=1))
        places = self._indices - first
        mine = np.flatnonzero((places >= 0) & (places < scores.shape[1]))
        owners = self._owners[mine]
        self.true += np.bincount(owners, scores[owners, places[mine]], len(scores))
        if self._kind is not None:
            self._add_to_total(scores, np.maximum(self.highest, highest))

    def fill(self, columns: Any, best: Any, total: Any, true: Any) -> None:
        """Set the results for all scores, instead of adding them; total is nan if not finite."""
        self.columns, self.best, self.highest = columns.astype(np.int64), best, best[:, 0]
        self.total, self.true, self.finite = total, true, np.isfinite(total)

    def _rank(self, first: int, scores: Floats, highest: Floats) -> None:
        """Replace the best columns so far by better ones."""
        k, last = self.columns.shape[1], self.best[:, -1]
        rows = np.flatnonzero(~(highest <= last) | (last == -np.inf))
        candidates = scores[rows]
        if np.isnan(highest).any():
            candidates[np.isnan(candidates)] = -np.inf
        least = self.best[rows, -1]
        if candidates.shape[1] > k:  # lower ones cannot be among the best
            least = np.maximum(least, np.partition(candidates, -k, axis=1)[:, -k])
        owners, columns = np.nonzero(candidates >= least[:, np.newaxis])
        owner = np.concatenate([np.repeat(np.arange(len(rows)), k), owners])
        column = np.concatenate([self.columns[rows].ravel(), first + columns])
        score = np.concatenate([self.best[rows].ravel(), candidates[owners, columns]])
        order = np.lexsort((column, -score, owner))
        sizes = np.bincount(owner, minlength=len(rows))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        best = order[rank < k]
        self.columns[rows] = column[best].reshape(-1, k)
        self.best[rows] = score[best].reshape(-1, k)

    @np.errstate(over="ignore", invalid="ignore")
    def _add_to_total(self, scores: Floats, highest: Floats) -> None:
        """Add to the total; overwrites `scores`."""
        if self._kind not in NORMALISED:
            self.total += np.maximum(scores, 0).sum(axis=1)
            np.abs(scores, out=scores)
            np.negative(scores, out=scores)
            np.exp(scores, out=scores)
            self.total += np.log1p(scores, out=scores).sum(axis=1)
        else:
            self.total *= np.exp(self.highest.astype(np.float64) - highest)
            scores -= highest[:, np.newaxis]
            self.total += np.exp(scores, out=scores).sum(axis=1)
        self.highest = highest

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def losses(self) -> NDArray[np.float64]:
        """The losses [B], once all scores were added; nan where not all are finite."""
        if self._kind not in NORMALISED:
            losses = self.total - self.true
        else:
            losses = softmax_losses(self.total, self.highest, self.true, self._labels)
        return np.where(self.finite, np.maximum(losses, 0), np.nan)

    def probabilities(self) -> Floats:
        """The probabilities [B, k] of the best columns."""
        if self._kind in NORMALISED:
            fractions = np.exp(self.best - self.highest[:, np.newaxis])
            part: Floats = (fractions / self.total[:, np.newaxis]).astype(np.float32)
            return part
        return np.exp(-np.logaddexp(np.float32(0), -self.best))
