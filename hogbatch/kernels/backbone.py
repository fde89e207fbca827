"""The layers below the dense layers of a network, on any backend.

Each kind of layer is a description (`hogbatch.config.backbone`) and one class per backend with the
methods of `LayerKernels`. Those here consist of the operations of a backend (`kernels.reference`)
and allocate nothing after their creation, so that steps can be captured; those of
`kernels.cpu.backbone` are compiled. Rows of x[B, m] and out[B, n] are pictures [height, width,
channels], one value after the other.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from hogbatch.config.backbone import (
    BackboneLayer,
    Convolution,
    Embedding,
    Pooling,
    Recurrent,
    Residual,
)
from hogbatch.kernels.contract import ACTIVATIONS, LINEAR, Floats, Hyper, Slots
from hogbatch.kernels.reference import Kernels
from hogbatch.kernels.scratch import ALIGNMENT

Tensors: TypeAlias = Sequence[Floats]  # of a layer, in the order of `layer.tensors()`
Empty: TypeAlias = Callable[[tuple[int, ...]], Floats]  # allocates an array of a shape
PATCH_VALUES: Final = 1 << 27  # 512 MB


class PlacedLayer(NamedTuple):
    """A layer, and where its tensors begin in the flat parameters."""

    layer: BackboneLayer
    offsets: tuple[int, ...]


class LayerBatch(NamedTuple):
    """The values of a layer for B rows, and their gradients."""

    x: Floats  # [B, m]
    out: Floats  # [B, n]
    grad: Floats  # [B, n]: of the outputs before their activation; may be overwritten
    below: Floats | None  # [B, m]: of the layer below before its activation; None: not needed
    activation: int  # of the layer below
    padded: bool = False  # inputs of 0 are padding, which needs no gradient


class LayerKernels(Protocol):
    """The computations of a layer."""

    @property
    def values(self) -> Sequence[Floats]:
        """Arrays with values of the last batch besides inputs and outputs, of any shape."""

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        """Compute out[B, n] from x[B, m]; the other input of a residual sum is in `out`."""

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        """Set the gradients of the tensors, and `below`; `grad` is of outputs before activation."""


class Backbone:
    """The layers of a backbone with their arrays for batches of up to `rows` rows.

    `kinds` creates the computations of a layer for so many rows.
    """

    def __init__(
        self,
        placed: Sequence[PlacedLayer],
        kinds: Mapping[type, Callable[[Any, int], LayerKernels]],
        empty: Empty,
        rows: int,
    ) -> None:
        self.rows = rows
        self._placed = placed
        self._kernels = [self._kernels_of(each.layer, kinds, empty) for each in placed]
        widths = [math.prod(each.layer.inputs) for each in placed]
        widths.append(math.prod(placed[-1].layer.outputs))
        sizes = [rows * width for width in widths]
        self._values, outputs = aligned_parts(empty, sizes)
        _, grads = aligned_parts(empty, sizes[1:])
        self._outputs = [each.reshape(rows, -1) for each in outputs]
        self._grads = [each.reshape(rows, -1) for each in grads]

    def _kernels_of(self, layer: BackboneLayer, kinds: Any, empty: Empty) -> LayerKernels:
        one: Callable[[Any, int], LayerKernels] = kinds[type(layer)]
        if isinstance(layer, Recurrent) and layer.both:
            return BothDirections(layer, self.rows, one, empty)
        return one(layer, self.rows)

    def inputs(self, rows: int) -> Floats:
        """The inputs [rows, F], to be set before `forward`."""
        return self._outputs[0][:rows]

    @property
    def values(self) -> list[Floats]:
        """The arrays with inputs, outputs and other values of a batch, of any shape."""
        return [self._values, *(values for each in self._kernels for values in each.values)]

    def forward(self, params: Floats, rows: int) -> Floats:
        """Return the outputs [rows, n] of the last layer."""
        outputs = [each[:rows] for each in self._outputs]
        for index, (kernels, each) in enumerate(zip(self._kernels, self._placed, strict=True)):
            x, out = outputs[index : index + 2]
            if each.layer.skipped:
                out[:] = outputs[index - each.layer.skipped]
            kernels.forward(tensors_of(each, params), x, out)
        return outputs[-1]

    def out(self, rows: int) -> Floats:
        """The outputs [rows, n] of the last layer."""
        return self._outputs[-1][:rows]

    @property
    def activation(self) -> int:
        """That of the last layer."""
        return ACTIVATIONS[self._placed[-1].layer.activation]

    def grad(self, rows: int) -> Floats:
        """The gradient [rows, n] of the last outputs before activation, set before `backward`."""
        return self._grads[-1][:rows]

    def backward(self, params: Floats, rows: int, gradient: Floats) -> None:
        """Set the gradients of all tensors but those of `step_rows`, in gradient[P - start].

        It begins with the parameter `start`.
        """
        start = params.size - gradient.size
        for index in reversed(range(self._placed[0].layer.by_rows, len(self._placed))):
            x, out, grad = (
                array[:rows] for array in (*self._outputs[index : index + 2], self._grads[index])
            )
            below, kind, padded = None, LINEAR, False
            if index > 0:
                below, layer = self._grads[index - 1][:rows], self._placed[index - 1].layer
                kind, padded = ACTIVATIONS[layer.activation], layer.by_rows
            each, batch = self._placed[index], LayerBatch(x, out, grad, below, kind, padded)
            found = tensors_of(each, gradient, start)
            self._kernels[index].backward(tensors_of(each, params), found, batch)
            for last, other in enumerate(self._placed):
                if below is not None and 0 < other.layer.skipped == last - index:
                    added = self._grads[last][:rows]  # a sum has the same gradient for both inputs
                    self._kernels[last].backward((), (), batch._replace(grad=added, below=added))
                    below += added

    def step_rows(self, kind: int, hyper: Hyper, rows: int, flats: Sequence[Floats]) -> None:
        """Step the rows of the first tensor that the batch uses, after `backward`.

        `flats` are parameters and slots [P], or [0]. Without such a layer, nothing happens.
        """
        if self._placed[0].layer.by_rows:
            kernels: Any = self._kernels[0]
            kernels.step(kind, hyper, self._outputs[0][:rows], self._grads[0][:rows], flats)


def aligned_parts(empty: Empty, sizes: Sequence[int]) -> tuple[Floats, list[Floats]]:
    """Return an array, and parts of it of these sizes that are aligned for matrix products."""
    step = ALIGNMENT // 4
    begins = [0, *accumulate(-(-size // step) * step for size in sizes)]
    whole = empty((begins[-1],))
    return whole, [whole[begin:][:size] for begin, size in zip(begins, sizes, strict=False)]


def tensors_of(placed: PlacedLayer, flat: Floats, start: int = 0) -> Tensors:
    """Views of the tensors of a layer in flat[P - start], which begins with parameter `start`."""
    shapes = placed.layer.tensors().values()
    return [
        flat[offset - start : offset - start + math.prod(shape)].reshape(shape)
        for offset, shape in zip(placed.offsets, shapes, strict=True)
    ]


class EmbeddingByRows:
    """Vectors that are looked up; `step` changes those of the ids of a batch.

    `kernels` are a backend, or functions of the same names.
    """

    values: tuple[Floats, ...] = ()

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


class ConvolutionByPatches:
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


class PoolingByWindows:
    """Pooling as one operation."""

    values: tuple[Floats, ...] = ()

    def __init__(self, layer: Pooling, rows: int, kernels: Kernels, empty: Empty) -> None:
        self._layer, self._kernels = layer, kernels

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        self._kernels.pool(self._layer, x, out)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, out, grad, below, activation, _ = batch
        if below is not None:
            self._kernels.pool_backward(self._layer, x, out, grad, activation, below)


class RecurrentBySteps:
    """A layer of LSTM or GRU units as a product and an operation for each of its T steps.

    G is the number of gates, 4 H for LSTM and 3 H for GRU.
    """

    def __init__(self, layer: Recurrent, rows: int, kernels: Kernels, empty: Empty) -> None:
        self._layer, self._kernels, self._bias = layer, kernels, empty((layer.gates,))
        (_, steps, features), units, gates = layer.inputs, layer.units, layer.gates
        self._bias[:] = 0
        added, cells = (steps, 0) if layer.gru else (1, steps + 1)
        shapes = (steps, features), (steps, gates), (added, gates), (cells, units)
        self._shapes = *shapes, (steps + 1, units), (1, units), (1, units)
        values, self._parts = aligned_parts(empty, [rows * math.prod(n) for n in self._shapes])
        self.values = (values,)

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        (weights, recurrent, bias), kernels, layer = tensors, self._kernels, self._layer
        inputs, gates, added, cells, states, *_ = self._arrays(len(x))
        steps, wide = len(gates), layer.gates
        inputs[:] = x.reshape(len(x), steps, -1).swapaxes(0, 1)
        flat = inputs.reshape(-1, inputs.shape[2]), gates.reshape(-1, wide)
        kernels.dense_forward(flat[0], weights, bias[:wide], LINEAR, wide, flat[1])
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
        (weights, recurrent, _), kernels, rows = tensors, self._kernels, len(x)
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


class BothDirections:
    """A layer of two recurrent layers, each computed by `one`; the second has reversed steps."""

    def __init__(
        self, layer: Recurrent, rows: int, one: Callable[[Any, int], LayerKernels], empty: Empty
    ) -> None:
        self._directions = [one(replace(layer, both=False), rows) for _ in layer.directions]
        self._steps = -1, *layer.inputs[1:]
        self._outputs = -1, layer.outputs[1], 2, layer.units
        widths = *2 * [math.prod(layer.inputs)], math.prod(layer.outputs) // 2
        self._parts = [empty((rows, width)) for width in widths]
        self.values = (*self._parts, *(each for own in self._directions for each in own.values))

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        reverse, _, own = (part[: len(x)] for part in self._parts)
        reverse.reshape(self._steps)[:] = x.reshape(self._steps)[:, ::-1]
        both = out.reshape(self._outputs)
        for n, given in enumerate((x, reverse)):
            self._directions[n].forward(tensors[3 * n :][:3], given, own)
            both[:, :: 1 - 2 * n, n] = own.reshape(both[:, :, n].shape)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        reverse, found, own = (part[: len(batch.x)] for part in self._parts)
        both, below = batch.grad.reshape(self._outputs), batch.below
        second = batch._replace(x=reverse, below=None if below is None else found)
        for n, given in enumerate((batch, second)):
            own.reshape(both[:, :, n].shape)[:] = both[:, :: 1 - 2 * n, n]
            part = given._replace(grad=own)
            self._directions[n].backward(tensors[3 * n :][:3], gradients[3 * n :][:3], part)
        if below is not None:
            total = below.reshape(self._steps)
            total += found.reshape(self._steps)[:, ::-1]


class ResidualSum:
    """A residual sum; see EmbeddingByRows for `kernels`."""

    values: tuple[Floats, ...] = ()

    def __init__(self, layer: Residual, rows: int, kernels: Any, empty: Empty) -> None:
        self._kernels, self._activation = kernels, ACTIVATIONS[layer.activation]

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        self._kernels.add_and_activate(x, self._activation, out)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        assert batch.below is not None  # there are layers to skip
        batch.below[:] = batch.grad
        self._kernels.activate_backward(batch.activation, batch.x, batch.below)


KINDS: Final[Mapping[type, Callable[..., LayerKernels]]] = {
    Embedding: EmbeddingByRows,
    Convolution: ConvolutionByPatches,
    Pooling: PoolingByWindows,
    Recurrent: RecurrentBySteps,
    Residual: ResidualSum,
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
