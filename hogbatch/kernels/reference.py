"""The operations of every backend, in plain NumPy, simple enough to verify by reading.

The GPU backend (`kernels.gpu`) overrides all of them and is tested on these. The compiled loops of
CPUs (`kernels.cpu`) have functions of their own for them. `HostDevice` and predictions use the
NumPy operations, too.

Rules for every operation
- arrays are C-contiguous; floats are float32, `indptr` and `rows` int64, `indices` int32 (NumPy
  also accepts float64, for checks by finite differences);
- `Operands` of matrix products have the type that the backend asks for (`operand_type`);
- K and H are *stored* widths, padded for SIMD; padding columns of activations and gradients and
  padding cells of weights are zero, and every operation keeps them so;
- `rows`[B] are row numbers into the whole set, so that no batch is copied out of a CSR;
- the output comes last and is written in place;
- arguments are not checked: that is the caller's task.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Inputs, Labels, csr_inputs
from hogbatch.kernels import contract, dropout
from hogbatch.kernels.contract import (
    EXTRA_WEIGHT,
    LOSS,
    METRIC_SUMS,
    SKIPPED,
    SKIPPED_ROW,
    Floats,
    Hyper,
    Operands,
    Rows,
    Slots,
)
from hogbatch.kernels.reference_backbone import BackboneKernels, activate, ids_in, multiply_by_slope
from hogbatch.kernels.reference_losses import functions_of, quiet


class Kernels(BackboneKernels):
    """The operations of a backend; this class is the NumPy backend."""

    def operand_type(self, params: np.dtype[Any]) -> np.dtype[Any]:
        """The type of `Operands`, given that of the parameters."""
        return params

    def to_operands(self, values: Floats, out: Operands) -> None:
        """out[P] = values[P], rounded to the type of `out`."""
        out[:] = values

    def gather(self, inputs: Inputs, rows: Rows, out: Operands) -> None:
        """out[B, K] = inputs of `rows`, dense or CSR, zero beyond column F."""
        out[:] = 0
        if len(inputs.indptr):
            members, positions = csr.cells(inputs.indptr, rows)
            np.add.at(out, (members, inputs.indices[positions]), inputs.values[positions])
        else:
            out[:, : inputs.dense.shape[1]] = inputs.dense[rows]

    @quiet
    def dense_forward(
        self,
        x: Operands,
        weights: Operands,
        bias: Operands | Floats,
        activation: int,
        width: int,
        out: Operands | Floats,
    ) -> None:
        """out[B, H] = f(x[B, K] @ weights[K, H] + bias[H]); columns from `width` on are zero.

        Every activation keeps nan, so that the loss detects it. The padding of a row that is not
        finite may be nan. `out` may be operands of another product or floats; `bias` has the same
        type.
        """
        np.matmul(x, weights, out=out)
        activate(activation, width, bias, out)

    @quiet
    def csr_forward(
        self,
        inputs: Inputs,
        rows: Rows,
        weights: Floats,
        bias: Floats,
        activation: int,
        width: int,
        out: Operands | Floats,
    ) -> None:
        """`dense_forward` with x the CSR inputs of `rows`; the parameters are not rounded."""
        indptr, positions = csr.positions(inputs.indptr, rows)
        _csr_product(indptr, inputs.indices[positions], inputs.values[positions], weights, out)
        activate(activation, width, bias, out)

    @quiet
    def drop(
        self, fraction: float, key: Any, layer: int, numbers: Rows, width: int, out: Operands
    ) -> None:
        """Leave out some outputs out[B, H] of hidden layer `layer`; see `kernels.dropout`.

        `key` is a uint32[1] of the backend, and `numbers`[B] are row numbers in the set.
        """
        first = dropout.mixed(key + np.uint32(layer))
        rows = dropout.mixed(first + numbers.astype(np.uint32))
        columns = np.arange(width, dtype=np.uint32) * dropout.SPREAD
        drawn = dropout.mixed(rows[:, None] + columns)
        kept, real = drawn >= dropout.limit(fraction), out[:, :width]
        real[:] = np.where(kept, real * dropout.factor(fraction), 0)

    @quiet
    def output_major_forward(
        self, x: Operands, weights: Operands, bias: Floats, width: int, out: Floats
    ) -> None:
        """Linear `dense_forward` with output-major weights[H, K]."""
        np.matmul(x, weights.T, out=out)
        activate(contract.LINEAR, width, bias, out)

    @quiet
    def activate_backward(self, kind: int, activated: Operands, grad: Operands) -> None:
        """grad[B, H] *= f'(z), from activated[B, H] = f(z)."""
        multiply_by_slope(kind, activated, grad)

    @quiet
    def loss_gradient(
        self,
        kind: int,
        labels: Labels,
        rows: Rows,
        numbers: Rows,
        width: int,
        scores: Floats,
        grad: Operands,
        totals: NDArray[np.float64],
    ) -> None:
        """grad[B, H] = d(mean loss)/d(scores); totals[LOSS] += sum of losses; see `smoothed`.

        Each loss is multiplied by the weight of its row, and the mean is its sum over B.
        `width` = C real columns. A row with a loss or a score that is not finite is counted in
        totals[SKIPPED] instead, its gradient is zero, and totals[SKIPPED_ROW] becomes 1 + its
        number, if that is higher. `numbers`[B] are the numbers of the `rows`, which differ from
        them if `rows` are positions in gathered labels. (The loss of an infinite score may be 0,
        but 0 times a value that overflowed is nan.) A row without labels has loss and gradient 0
        if the loss is a softmax over label lists. A loss of numbers is the sum over the C targets
        of a row.
        """
        loss, slope = functions_of(kind)[0](labels, rows, scores[:, :width])
        weights = _weights(labels, rows)
        good = _count(loss, weights, scores[:, :width], totals)
        grad[:] = 0
        slope = slope * weights[:, None]
        np.divide(slope, len(rows), out=grad[:, : slope.shape[1]], where=good[:, None])
        totals[SKIPPED_ROW] = max(totals[SKIPPED_ROW], numbers[~good].max(initial=-1) + 1)

    def forget_not_finite(self, totals: NDArray[np.float64], values: Operands) -> None:
        """Set values[...] that are not finite to 0, if totals[SKIPPED] counts any row.

        A skipped row has gradient 0, but 0 times a value that overflowed is nan.
        """
        if totals[SKIPPED] > 0:
            np.nan_to_num(values, copy=False, nan=0.0, posinf=0.0, neginf=0.0)

    @quiet
    def loss_and_metrics(
        self,
        kind: int,
        labels: Labels,
        rows: Rows,
        width: int,
        scores: Floats,
        totals: NDArray[np.float64],
    ) -> None:
        """totals[LOSS] += sum of losses, totals[METRIC_SUMS...] += sums of the loss's metrics.

        LABEL_LISTS: precision at 1, 3, 5. Of the other losses, NORMALISED: rows whose class has the
        highest score; BINARY: rows whose score has the sign of the label; else squared errors of
        the predictions, which are the scores, or for POISSON exp(min(score, LARGEST_LOG)), summed
        over the targets. A row with a score that is not finite is counted in totals[SKIPPED].
        Losses and metrics are multiplied by the weights of the rows.
        """
        real, (loss_of, metrics_of) = scores[:, :width], functions_of(kind)
        weights = _weights(labels, rows)
        good = _count(loss_of(labels, rows, real)[0], weights, real, totals)
        for metric, terms in enumerate(metrics_of(labels, rows, real)):
            totals[METRIC_SUMS + metric] += (terms * weights)[good].sum(dtype=np.float64)

    @quiet
    def dense_backward(
        self,
        grad: Operands,
        weights: Operands,
        activation: int,
        activated: Operands,
        out: Operands | Floats,
    ) -> None:
        """out[B, K] = (grad[B, H] @ weights[K, H].T) * f'(z), from activated[B, K] = f(z).

        f is the `activation` of the layer below. If f is linear, `activated` is not read.
        """
        np.matmul(grad, weights.T, out=out)
        self.activate_backward(activation, activated, out)

    def scale(self, fraction: float, grad: Operands) -> None:
        """grad[B, H] *= fraction."""
        grad *= fraction

    @quiet
    def bound_rows(self, kind: int, hyper: Hyper, batch: int, x: Operands, grad: Operands) -> None:
        """grad[B, H] *= min(1, FURTHEST batch / (rate |x[b]|²)) for each row b of x[B, K].

        `batch` is the number of rows that step together; x may hold only some of them. If the
        optimizer is BOUNDED, a row of norm |x| moves its own pre-activations by rate |x|² / batch
        times its gradient (with VELOCITY, 1 / (1 - momentum) times as far), so one outlier could
        ruin a model that has trained for hours. Normalised LMS has the same bound (Nagumo & Noda
        1967), with FURTHEST = 1 and a batch of 1. Other optimizers normalise their own steps.
        """
        _bound(kind, hyper, batch, np.square(x).sum(axis=1), grad)

    def bound_layers(
        self,
        kind: int,
        hyper: Hyper,
        batch: int,
        x: tuple[Operands, ...],
        grads: tuple[Operands, ...],
    ) -> None:
        """`bound_rows` for several layers: grads[l][B, H] with the inputs x[l][B, K]."""
        for inputs, grad in zip(x, grads, strict=True):
            self.bound_rows(kind, hyper, batch, inputs, grad)

    @quiet
    def csr_bound_rows(
        self, kind: int, hyper: Hyper, inputs: Inputs, rows: Rows, grad: Operands
    ) -> None:
        """`bound_rows` with x the CSR inputs of `rows`, which are the whole batch."""
        members, positions = csr.cells(inputs.indptr, rows)
        squares = np.bincount(members, np.square(inputs.values[positions]), len(rows))
        _bound(kind, hyper, len(rows), squares, grad)

    def weight_gradient(self, x: Operands, grad: Operands, out: Floats, bias: Floats) -> None:
        """out[K, H] = x[B, K].T @ grad[B, H]; bias[H] = sum over B of grad ([0]: not needed)."""
        np.matmul(x.T, grad, out=out)
        if bias.size:
            self.bias_gradient(grad, bias)

    def bias_gradient(self, grad: Operands, out: Floats) -> None:
        """out[H] = sum over B of grad[B, H]."""
        grad.sum(axis=0, out=out)

    def add_weight_gradient(
        self, fraction: float, x: Operands, grad: Operands, out: Floats
    ) -> None:
        """out[K, H] += fraction * x[B, K].T @ grad[B, H]: the part of some rows of a batch."""
        out += (fraction * x).T @ grad

    def add_bias_gradient(self, fraction: float, grad: Operands, out: Floats) -> None:
        """out[H] += fraction * sum over B of grad[B, H]."""
        out += fraction * grad.sum(axis=0)

    @quiet
    def step(
        self, kind: int, hyper: Hyper, gradient: Floats, slots: Slots, weights: Floats
    ) -> None:
        """One optimizer step on a tensor of any shape, in place.

        g = gradient + l2 * weights, or the gradient if the optimizer is DECOUPLED. The rules are
        stated in hogbatch.config.optimizers; the caller computes the bias correction.
        ADAPTIVE optimizers treat a `gradient` that is not below LARGEST, or not finite, as 0.
        """
        (first, second), rate = slots, _rate(hyper)
        if kind in contract.ADAPTIVE:
            gradient = np.where(np.abs(gradient) < contract.LARGEST, gradient, 0)
        decay = hyper.l2 * weights if hyper.l2 else 0
        g = gradient if kind in contract.DECOUPLED else gradient + decay
        if kind == contract.SGD:
            weights -= rate * g
        elif kind == contract.MOMENTUM:
            first *= hyper.momentum
            first += g
            weights -= rate * first
        elif kind == contract.ADAGRAD:
            first += g * g
            weights -= rate * g / (np.sqrt(first) + hyper.epsilon)
        elif kind == contract.ADAM:
            first += (1 - hyper.momentum) * (g - first)
            second += (1 - hyper.beta2) * (g * g - second)
            weights -= rate * (first / (np.sqrt(second) + hyper.epsilon) + decay)

    def csr_scratch(self, features: int, width: int) -> Any:
        """The `scratch` of `csr_step` for weights[F, H]; one step after the other may use it."""
        return None

    @quiet
    def csr_step(
        self,
        kind: int,
        hyper: Hyper,
        inputs: Inputs,
        rows: Rows,
        grad: Operands,
        scratch: Any,
        slots: Slots,
        weights: Floats,
    ) -> None:
        """`step` with gradient X.T @ grad[B, H], only on the rows of weights[F, H] that X touches.

        A feature that occurs in several rows of the batch is stepped once, with their sum.
        """
        members, positions = csr.cells(inputs.indptr, rows)
        by_feature = np.argsort(inputs.indices[positions], kind="stable")
        positions, members = positions[by_feature], members[by_feature]
        touched, starts = np.unique(inputs.indices[positions], return_index=True)
        gradient = np.empty((len(touched), grad.shape[1]), grad.dtype)
        columns = np.append(starts, len(positions))
        _csr_product(columns, members, inputs.values[positions], grad, gradient)
        arrays = *slots, weights
        first, second, stepped = (each[touched] if each.size else each for each in arrays)
        self.step(kind, hyper, gradient, Slots(first, second), stepped)
        for array, part in zip(arrays, (first, second, stepped), strict=True):
            if array.size:
                array[touched] = part

    def embedding_scratch(self, count: int, ids: int, width: int) -> Any:
        """The `scratch` of `step_vectors` for batches of up to `count` ids."""
        return None

    def step_vectors(
        self,
        kind: int,
        hyper: Hyper,
        x: Floats,
        grad: Floats,
        scratch: Any,
        slots: Slots,
        vectors: Floats,
    ) -> None:
        """`step` of the rows of vectors[V, E] that ids x[B, T] name, from grad[B, T * E].

        It is that of sparse rows with one feature each: padding is feature 0 with value 0.
        """
        ids = ids_in(x, len(vectors)).ravel()
        one = np.arange(len(ids) + 1)
        inputs = csr_inputs(one, ids.astype(np.int32), (ids > 0).astype(grad.dtype))
        by_id = grad.reshape(len(ids), -1)
        self.csr_step(kind, hyper, inputs, one[:-1], by_id, scratch, slots, vectors)


def _csr_product(
    indptr: Rows, indices: NDArray[Any], values: Floats, dense: Floats, out: Floats
) -> None:
    """out[M, H] = S[M, N] @ dense[N, H]; a loop over rows, because one row fits in the cache."""
    bounds = indptr.tolist()
    for start, stop, target in zip(bounds, bounds[1:], out, strict=False):
        np.dot(values[start:stop], dense[indices[start:stop]], out=target)


def _weights(labels: Labels, rows: Rows) -> Floats:
    """The weights of `rows` [B]."""
    return labels.weights[rows] if len(labels.weights) else np.ones(len(rows), np.float32)


def _count(
    loss: Floats, weights: Floats, scores: Floats, totals: NDArray[np.float64]
) -> NDArray[np.bool_]:
    good = np.isfinite(loss) & np.isfinite(scores).all(axis=1)
    totals[LOSS] += (loss * weights)[good].sum(dtype=np.float64)
    totals[EXTRA_WEIGHT] += (weights[good] - 1).sum(dtype=np.float64)
    totals[SKIPPED] += np.count_nonzero(~good)
    return good


def _bound(kind: int, hyper: Hyper, batch: int, squares: NDArray[Any], grad: Operands) -> None:
    """`bound_rows` from the squared norms of the inputs, squares[B]."""
    if kind in contract.BOUNDED:
        fresh = 1 - hyper.momentum if kind in contract.VELOCITY else 1
        moved = np.maximum(_rate(hyper) / fresh / batch * squares, contract.FURTHEST)
        grad *= (contract.FURTHEST / moved)[:, None].astype(grad.dtype)


def _rate(hyper: Hyper) -> float:
    """The learning rate as a number; captured steps have it in an array [1]."""
    return float(np.asarray(hyper.rate).item())


NUMPY_KERNELS: Final = Kernels()
