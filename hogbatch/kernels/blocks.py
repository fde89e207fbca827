"""The scores of a trained network block by block of its outputs, with NumPy alone.

Of a row's scores one wants the best few, or how large they are together, but never all of very many
at once: blocks of outputs are scored while they are in cache, looked at, and forgotten. Weights are
read where they lie, in real widths.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch import kernels
from hogbatch.data.batch import (
    DoubleInputs,
    Inputs,
    RawInputs,
    csr_inputs,
    dense_inputs,
    double_inputs,
)
from hogbatch.data.csr import rows_of
from hogbatch.kernels.contract import MULTILABEL, SOFTMAX, SOFTMAX_MANY, Floats

OUTPUTS: Final = 2048  # of a block
NOBODY: Final = np.iinfo(np.int64).max  # in place of a column, where there is none


class LayerWeights(NamedTuple):
    """The parameters of one layer, without padding, and what is done with them."""

    weights: Floats  # [K, H]; by neuron [H, K]
    bias: Floats  # [H]
    activation: int
    output_major: bool


def count(inputs: RawInputs) -> int:
    """N."""
    return max(len(inputs.indptr) - 1, len(inputs.dense))


def between(inputs: RawInputs, start: int, stop: int) -> RawInputs:
    """Views of rows [start, stop)."""
    if isinstance(inputs, DoubleInputs):
        return double_inputs(inputs.dense[start:stop])
    if not len(inputs.indptr):
        return dense_inputs(inputs.dense[start:stop])
    indptr = inputs.indptr[start : stop + 1]
    stored = slice(indptr[0], indptr[-1])
    return csr_inputs(indptr - indptr[0], inputs.indices[stored], inputs.values[stored])


def hidden(layers: tuple[LayerWeights, ...], inputs: Inputs) -> Inputs:
    """What the last layer is given, of all rows; `inputs` themselves where it is the only one."""
    for layer in layers[:-1]:
        out = np.empty((count(inputs), len(layer.bias)), np.float32)
        _apply(layer, inputs, out)
        inputs = dense_inputs(out)
    return inputs


def blocks(layer: LayerWeights, inputs: Inputs) -> Iterator[tuple[int, Floats]]:
    """The scores [N, <= OUTPUTS] by one block of outputs after the other, each with its first.

    They are scratch, good until the next.
    """
    rows, width = count(inputs), len(layer.bias)
    space = np.empty(rows * min(width, OUTPUTS), np.float32)
    for first in range(0, width, OUTPUTS):
        part = slice(first, min(first + OUTPUTS, width))
        weights = layer.weights[part] if layer.output_major else layer.weights[:, part]
        block = layer._replace(weights=weights, bias=layer.bias[part])
        scores = space[: rows * len(block.bias)].reshape(rows, -1)
        _apply(block, inputs, scores)
        yield first, scores


def _apply(layer: LayerWeights, inputs: Inputs, out: Floats) -> None:
    reference, width = kernels.load("reference"), out.shape[1]
    weights, bias, kind = layer.weights, layer.bias, layer.activation
    if len(inputs.indptr):
        rows = np.arange(count(inputs))
        reference.csr_forward(inputs, rows, weights, bias, kind, width, out)
    elif layer.output_major:
        reference.dense_backward(inputs.dense, weights, out)
        reference.add_bias(bias, width, out)
    else:
        reference.dense_forward(inputs.dense, weights, bias, kind, width, out)


class Seen:
    """What has been seen of the scores of each of B rows, block after block.

    `kind` is the loss whose normaliser is to be summed up; `indptr`[B + 1] and `indices` are the
    rows' true columns, whose scores are to be added.
    """

    def __init__(
        self,
        rows: int,
        k: int,
        kind: int | None = None,
        true: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None,
    ) -> None:
        self.columns = np.full((rows, k), NOBODY)  # of the k highest scores, best first
        self.best = np.full((rows, k), -np.inf, np.float32)  # those; of equal ones the first
        self.highest = np.full(rows, -np.inf, np.float32)
        self.finite = np.ones(rows, np.bool_)
        # Of exp(score - highest), of multilabel of log(1 + exp(score)).
        self.total = np.zeros(rows)
        self.true = np.zeros(rows)  # the sum of the true columns' scores
        self._kind = kind
        none = np.zeros(rows + 1, np.int64), np.empty(0, np.int32)
        indptr, self._indices = none if true is None else true
        self._labels = np.diff(indptr)
        self._owners = rows_of(indptr)

    def see(self, first: int, scores: Floats) -> None:
        """Take in scores[B, n] of the columns from `first` on; may leave nonsense in `scores`."""
        highest = scores.max(axis=1)
        self._rank(first, scores, highest)
        self.finite &= np.isfinite(highest) & np.isfinite(scores.min(axis=1))
        places = self._indices - first
        mine = np.flatnonzero((places >= 0) & (places < scores.shape[1]))
        owners = self._owners[mine]
        self.true += np.bincount(owners, scores[owners, places[mine]], len(scores))
        if self._kind is not None:
            self._add(scores, np.maximum(self.highest, highest))

    def _rank(self, first: int, scores: Floats, highest: Floats) -> None:
        """Let what is better than the last of the best so far take its place."""
        k, last = self.columns.shape[1], self.best[:, -1]
        rows = np.flatnonzero(~(highest <= last) | (last == -np.inf))
        found = scores[rows]
        if np.isnan(highest).any():
            found[np.isnan(found)] = -np.inf
        least = self.best[rows, -1]
        if found.shape[1] > k:  # others cannot be among the best
            least = np.maximum(least, np.partition(found, -k, axis=1)[:, -k])
        owners, columns = np.nonzero(found >= least[:, np.newaxis])
        owner = np.concatenate([np.repeat(np.arange(len(rows)), k), owners])
        column = np.concatenate([self.columns[rows].ravel(), first + columns])
        score = np.concatenate([self.best[rows].ravel(), found[owners, columns]])
        order = np.lexsort((column, -score, owner))
        sizes = np.bincount(owner, minlength=len(rows))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept = order[rank < k]
        self.columns[rows] = column[kept].reshape(-1, k)
        self.best[rows] = score[kept].reshape(-1, k)

    @np.errstate(over="ignore", invalid="ignore")
    def _add(self, scores: Floats, highest: Floats) -> None:
        """Add to the total, in place of the scores."""
        if self._kind == MULTILABEL:
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
        """The losses [B] of rows all of whose scores were seen; nan where not all are finite."""
        if self._kind == MULTILABEL:
            losses = self.total - self.true
        else:
            losses = np.log(self.total) + self.highest - self.true / np.maximum(self._labels, 1)
            losses *= self._labels > 0
        return np.where(self.finite, np.maximum(losses, 0), np.nan)

    def probabilities(self) -> Floats:
        """The probabilities [B, k] of the best columns."""
        if self._kind in (SOFTMAX, SOFTMAX_MANY):
            fractions = np.exp(self.best - self.highest[:, np.newaxis])
            part: Floats = (fractions / self.total[:, np.newaxis]).astype(np.float32)
            return part
        result: Floats = np.exp(-np.logaddexp(np.float32(0), -self.best))
        return result
