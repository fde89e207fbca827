"""Layers below the dense layers that consist of the operations of a backend (`kernels.reference`).

They allocate nothing after their creation, so that steps can be captured.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from hogbatch.config.backbone_layers import (
    Convolution,
    Embedding,
    Normalisation,
    Pooling,
    Recurrent,
    Residual,
)
from hogbatch.kernels.backbone import (
    Backbone,
    Empty,
    LayerBatch,
    LayerKernels,
    PlacedLayer,
    Tensors,
    aligned_parts,
)
from hogbatch.kernels.contract import ACTIVATIONS, CLOSED, LINEAR, Floats, Hyper, Slots
from hogbatch.kernels.reference import Kernels

PATCH_VALUES: Final = 1 << 27  # 512 MB


class EmbeddingByRows(LayerKernels):
    """Vectors that are looked up; `step` changes those of the ids of a batch.

    `kernels` are a backend, or functions of the same names.
    """

    def __init__(self, layer: Embedding, rows: int, kernels: Any, empty: Empty) -> None:
        self._shape, self._kernels = (layer.ids, layer.width), kernels
        self._scratch = kernels.embedding_scratch(rows * math.prod(layer.inputs), *self._shape)

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        self._kernels.look_up(x, tensors[0], out)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        raise NotImplementedError("the first layer, see `step`")

    def step(
        self, kind: int, hyper: Hyper, x: Floats, grad: Floats, flats: Sequence[Floats]
    ) -> None:
        """Step the vectors of the ids x[B, T] with grad[B, T * E]; see `Backbone.step_rows`."""
        size = math.prod(self._shape)
        vectors, *slots = (
            each[:size].reshape(self._shape) if each.size else each for each in flats
        )
        given = x, grad, self._scratch, Slots(*slots), vectors
        self._kernels.step_vectors(kind, hyper, *given)


class ConvolutionByPatches(LayerKernels):
    """A convolution as products of the patches of its inputs with the filters.

    The patches of a batch are kept for its backward pass, unless they have more than PATCH_VALUES
    values: then those of some rows at a time are taken twice.
    """

    def __init__(self, layer: Convolution, rows: int, kernels: Kernels, empty: Empty) -> None:
        self._layer, self._kernels = layer, kernels
        self._positions = math.prod(layer.outputs[:2])
        self._rows = min(rows, max(1, PATCH_VALUES // layer.patches))
        shape = self._rows * self._positions, layer.patches // self._positions
        self._patches = empty(shape)
        self.values = (self._patches,)

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        (weights, bias), filters = tensors, self._layer.filters
        matrix, kind = weights.reshape(-1, filters), ACTIVATIONS[self._layer.activation]
        for rows, patches in self._parts(x, kept=False):
            part = out[rows].reshape(-1, filters)
            self._kernels.dense_forward(patches, matrix, bias, kind, filters, part)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, _, grad, below, activation, _ = batch
        kernels, filters = self._kernels, self._layer.filters
        weights, found = (each[0].reshape(-1, filters) for each in (tensors, gradients))
        kernels.bias_gradient(grad.reshape(-1, filters), gradients[1])
        for rows, patches in self._parts(x, kept=len(x) <= self._rows):
            part = grad[rows].reshape(-1, filters)
            if rows.start == 0:
                kernels.weight_gradient(patches, part, found, gradients[1][:0])
            else:
                kernels.add_weight_gradient(1.0, patches, part, found)
            if below is not None:
                kernels.dense_backward(part, weights, LINEAR, patches, patches)
                kernels.add_patches(self._layer, patches, below[rows])
        if below is not None:
            kernels.activate_backward(activation, x, below)

    def _parts(self, x: Floats, *, kept: bool) -> Iterator[tuple[slice, Floats]]:
        """Yield some rows at a time with their patches, which are in memory already if `kept`."""
        for start in range(0, len(x), self._rows):
            rows = slice(start, min(start + self._rows, len(x)))
            patches = self._patches[: (rows.stop - start) * self._positions]
            if not kept:
                self._kernels.take_patches(self._layer, x[rows], patches)
            yield rows, patches


class PoolingByWindows(LayerKernels):
    """Pooling as one operation."""

    def __init__(self, layer: Pooling, rows: int, kernels: Kernels, empty: Empty) -> None:
        self._layer, self._kernels = layer, kernels

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        self._kernels.pool(self._layer, x, out)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, out, grad, below, activation, _ = batch
        if below is not None:
            self._kernels.pool_backward(self._layer, x, out, grad, activation, below)


class RecurrentBySteps(LayerKernels):
    """A layer of LSTM or GRU units as a product and an operation for each of its T steps.

    G is the number of gates, 4 H for LSTM and 3 H for GRU.
    """

    def __init__(self, layer: Recurrent, rows: int, kernels: Kernels, empty: Empty) -> None:
        self._layer, self.kernels, self._bias = layer, kernels, empty((layer.gates,))
        (_, steps, features), units, gates = layer.inputs, layer.units, layer.gates
        self._bias[:] = 0
        self._starts = empty((rows,))
        added, cells = (steps, 0) if layer.gru else (1, steps + 1)
        shapes = (steps, features), (steps, gates), (added, gates), (cells, units)
        self._shapes = *shapes, (steps + 1, units), (1, units), (1, units)
        values, self._parts = aligned_parts(empty, [rows * math.prod(n) for n in self._shapes])
        self.values = (values,)

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        (weights, recurrent, bias), kernels, layer = tensors, self.kernels, self._layer
        inputs, gates, added, cells, states, *_ = self._arrays(len(x))
        steps, wide = len(gates), layer.gates
        inputs[:] = x.reshape(len(x), steps, -1).swapaxes(0, 1)
        flat = inputs.reshape(-1, inputs.shape[2]), gates.reshape(-1, wide)
        kernels.dense_forward(flat[0], weights, bias[:wide], LINEAR, wide, flat[1])
        if layer.padded:
            first, value = (2 * layer.units, CLOSED) if layer.gru else (0, -CLOSED)
            closed, starts = gates[:, :, first : first + layer.units], self._starts[: len(x)]
            kernels.first_steps(x.reshape(len(x), steps, -1), starts)
            kernels.set_in_padding(starts, value, closed)
        if layer.gru:  # the other biases are in the product with the inputs
            self._bias[2 * layer.units :] = bias[wide:]
        cells[:1], states[0], added[0] = 0, 0, self._bias
        for t in range(steps):
            own = added[t % len(added)]
            if t > 0:
                kernels.dense_forward(states[t], recurrent, self._bias, LINEAR, wide, own)
            if layer.gru:
                kernels.gru_step(gates[t], own, states[t], states[t + 1])
            else:
                kernels.lstm_step(gates[t], own, cells[t], cells[t + 1], states[t + 1])
        last = states[-layer.outputs[1] :]
        out.reshape(len(x), len(last), -1)[:] = last.swapaxes(0, 1)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, _, grad, below, activation, _ = batch
        (weights, recurrent, _), kernels, rows = tensors, self.kernels, len(x)
        inputs, gates, added, cells, states, (state,), (direct,) = self._arrays(rows)
        gru, units = self._layer.gru, self._layer.units
        changes = added if gru else gates
        state[:], direct[:] = 0, 0
        given = grad.reshape(rows, self._layer.outputs[1], -1)
        for t in reversed(range(len(gates))):
            at = t - len(gates) + given.shape[1]
            found = given[:, at] if at >= 0 else given[:, :0], state, direct
            if gru:
                kernels.gru_step_backward(gates[t], added[t], states[t], *found)
            else:
                kernels.lstm_step_backward(gates[t], cells[t], cells[t + 1], *found)
            if t > 0:
                kernels.dense_backward(changes[t], recurrent, LINEAR, state, state)
        flat, by_row = gates.reshape(-1, gates.shape[2]), inputs.reshape(-1, inputs.shape[2])
        before = states[:-1].reshape(-1, states.shape[2])
        bias = gradients[2][: flat.shape[1]], gradients[2][units:] if gru else gradients[2][:0]
        kernels.weight_gradient(by_row, flat, gradients[0], bias[0])
        kernels.weight_gradient(before, changes.reshape(flat.shape), gradients[1], bias[1])
        if below is not None:
            kernels.dense_backward(flat, weights, LINEAR, by_row, by_row)
            below.reshape(rows, len(gates), -1)[:] = inputs.swapaxes(0, 1)
            kernels.activate_backward(activation, x, below)

    def _arrays(self, rows: int) -> list[Any]:
        """Inputs [T, B, F], gates [T, B, G], the sums that are added to them, cells and states.

        Cells (LSTM) and states are [T + 1, B, H], from 0 on. The sums are [1, B, G] (LSTM), or
        those of all steps (GRU). Last, the gradient [1, B, H] of the states of a step, and the part
        of it, or of the cells, that the step itself passes on.
        """
        return [
            each[: count * rows * width].reshape(count, rows, width)
            for each, (count, width) in zip(self._parts, self._shapes, strict=True)
        ]


class ResidualSum(LayerKernels):
    """A residual sum; see EmbeddingByRows for `kernels`."""

    def __init__(self, layer: Residual, rows: int, kernels: Any, empty: Empty) -> None:
        self._kernels, self._activation = kernels, ACTIVATIONS[layer.activation]

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        self._kernels.add_and_activate(x, self._activation, out)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        assert batch.below is not None  # there are layers to skip
        batch.below[:] = batch.grad
        self._kernels.activate_backward(batch.activation, batch.x, batch.below)


class LayerNormalisation(LayerKernels):
    """Layer normalisation; see EmbeddingByRows for `kernels`."""

    def __init__(self, layer: Normalisation, rows: int, kernels: Any, empty: Empty) -> None:
        self._kernels, self._activation = kernels, ACTIVATIONS[layer.activation]
        self._cells, self._channels = math.prod(layer.inputs[:2]), layer.inputs[2]
        cells = rows * self._cells
        self.values = empty((cells, self._channels)), empty((cells,))

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        given = self._by_cell(x), tuple(tensors), self._activation, self._kept(len(x))
        self._kernels.normalise(*given, self._by_cell(out))

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, _, grad, below, activation, _ = batch
        given = self._kept(len(x)), tuple(tensors), self._by_cell(grad), tuple(gradients)
        self._kernels.normalise_backward(*given, self._by_cell(grad if below is None else below))
        if below is not None:
            self._kernels.activate_backward(activation, x, below)

    def _by_cell(self, values: Floats) -> Floats:
        return values.reshape(-1, self._channels)

    def _kept(self, rows: int) -> tuple[Floats, ...]:
        return tuple(each[: rows * self._cells] for each in self.values)


KINDS: Final[Mapping[type, Callable[..., LayerKernels]]] = {
    Embedding: EmbeddingByRows,
    Convolution: ConvolutionByPatches,
    Pooling: PoolingByWindows,
    Recurrent: RecurrentBySteps,
    Residual: ResidualSum,
    Normalisation: LayerNormalisation,
}


def backbone_of(
    placed: Sequence[PlacedLayer], kernels: Kernels, xp: Any, dtype: Any, rows: int
) -> Backbone:
    """Return the layers on the backend `kernels`, whose arrays `xp` creates."""

    def empty(shape: tuple[int, ...]) -> Floats:
        array: Floats = xp.empty(shape, dtype)
        return array

    kinds = {kind: partial(made, kernels=kernels, empty=empty) for kind, made in KINDS.items()}
    return Backbone(placed, kinds, empty, rows)
