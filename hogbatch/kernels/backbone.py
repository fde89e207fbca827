"""The layers below the dense layers of a network, on any backend.

Each kind of layer is a description (`hogbatch.config.backbone_layers`) and one class per backend
with the methods of `LayerKernels`: those of `kernels.backbone_layers`, and compiled ones of
`kernels.cpu.backbone`. Rows of x[B, m] and out[B, n] are pictures [height, width, channels], one
value after the other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, TypeAlias

from hogbatch.config.backbone_layers import BackboneLayer, Recurrent
from hogbatch.kernels.contract import ACTIVATIONS, LINEAR, Floats, Hyper
from hogbatch.kernels.scratch import ALIGNMENT

Tensors: TypeAlias = Sequence[Floats]  # of a layer, in the order of `layer.tensors()`
Empty: TypeAlias = Callable[[tuple[int, ...]], Floats]  # allocates an array of a shape


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

    values: Sequence[Floats] = ()  # of the last batch besides inputs and outputs, of any shape

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


class BothDirections(LayerKernels):
    """A layer of two recurrent layers, each computed by `one`; the second has reversed steps.

    Padding is in front for both.
    """

    def __init__(
        self, layer: Recurrent, rows: int, one: Callable[[Any, int], Any], empty: Empty
    ) -> None:
        self._padded, outputs = layer.padded, (layer.outputs[1], layer.units)
        self._directions = [one(replace(layer, both=False), rows) for _ in layer.directions]
        shapes = *2 * [layer.inputs[1:]], *2 * [outputs]
        self._parts = [empty((rows,)), *(empty((rows, *shape)) for shape in shapes)]
        self._parts[0][:] = 0  # without padding
        self.values = (*self._parts, *(each for own in self._directions for each in own.values))

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        starts, reverse, _, own, turned = (part[: len(x)] for part in self._parts)
        (first, second), given = self._directions, x.reshape(reverse.shape)
        both = out.reshape(*own.shape[:2], 2, own.shape[2])
        if self._padded:
            first.kernels.first_steps(given, starts)
        first.kernels.reverse_steps(starts, given, reverse)
        first.forward(tensors[:3], x, own)
        both[:, :, 0] = own
        second.forward(tensors[3:], reverse.reshape(x.shape), own)
        first.kernels.reverse_steps(starts, own, turned)
        both[:, :, 1] = turned

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        starts, reverse, found, own, turned = (part[: len(batch.x)] for part in self._parts)
        (first, second), below = self._directions, batch.below
        both, flat = batch.grad.reshape(*own.shape[:2], 2, own.shape[2]), batch.x.shape
        own[:] = both[:, :, 0]
        first.backward(tensors[:3], gradients[:3], batch._replace(grad=own))
        own[:] = both[:, :, 1]
        first.kernels.reverse_steps(starts, own, turned)
        given = batch._replace(x=reverse.reshape(flat), grad=turned)
        given = given._replace(below=None if below is None else found.reshape(flat))
        second.backward(tensors[3:], gradients[3:], given)
        if below is not None:
            first.kernels.reverse_steps(starts, found, reverse)
            below += reverse.reshape(flat)


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
