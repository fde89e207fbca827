"""The layers below the dense layers of a network, on any backend.

Each kind of layer is a description (`hogbatch.config.backbone`) and one class per backend with the
methods of `LayerKernels`: those here consist of array operations and of the products of a backend
(`kernels.contract`), those of `kernels.cpu.backbone` are compiled. Rows of x[B, m] and out[B, n]
are pictures [height, width, channels], one value after the other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from hogbatch.config.backbone import BackboneLayer, Convolution, Lstm, Pooling
from hogbatch.kernels.contract import ACTIVATIONS, Floats
from hogbatch.kernels.reference import Kernels

Tensors: TypeAlias = Sequence[Floats]  # of a layer, in the order of `layer.tensors()`


class PlacedLayer(NamedTuple):
    """A layer, and where its tensors begin in the flat parameters."""

    layer: BackboneLayer
    offsets: tuple[int, ...]


class LayerBatch(NamedTuple):
    """The values of a layer for B rows, and their gradients."""

    x: Floats  # [B, m]
    out: Floats  # [B, n]
    grad: Floats  # [B, n]: of `out`; may be overwritten
    below: Floats | None  # [B, m]: of `x`, to be set; None: not needed


class LayerKernels(Protocol):
    """The computations of a layer."""

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        """Compute out[B, n] from x[B, m]."""

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        """Set the gradients of the tensors, and those of the inputs."""


class Backbone:
    """The layers of a backbone with their arrays for batches of up to `rows` rows."""

    def __init__(
        self,
        placed: Sequence[PlacedLayer],
        kinds: Mapping[type, Callable[[Any], LayerKernels]],
        empty: Callable[[tuple[int, ...]], Floats],
        rows: int,
    ) -> None:
        self.rows = rows
        self._placed = placed
        self._kernels = [kinds[type(each.layer)](each.layer) for each in placed]
        widths = [math.prod(each.layer.inputs) for each in placed]
        widths.append(math.prod(placed[-1].layer.outputs))
        self._outputs = [empty((rows, width)) for width in widths]
        self._grads = [empty((rows, width)) for width in widths[1:]]

    def inputs(self, rows: int) -> Floats:
        """The inputs [rows, F], to be set before `forward`."""
        return self._outputs[0][:rows]

    @property
    def outputs(self) -> list[Floats]:
        """The inputs, and the outputs of each layer."""
        return self._outputs

    def forward(self, params: Floats, rows: int) -> Floats:
        """Return the outputs [rows, n] of the last layer."""
        outputs = [each[:rows] for each in self._outputs]
        for kernels, each, x, out in zip(
            self._kernels, self._placed, outputs, outputs[1:], strict=False
        ):
            kernels.forward(tensors_of(each, params), x, out)
        return outputs[-1]

    def grad(self, rows: int) -> Floats:
        """The gradient [rows, n] of the last outputs, to be set before `backward`."""
        return self._grads[-1][:rows]

    def backward(self, params: Floats, rows: int, gradient: Floats) -> None:
        """Set the gradients of all tensors, in gradient[P]."""
        for index in reversed(range(len(self._placed))):
            x, out = (each[:rows] for each in self._outputs[index : index + 2])
            below = self._grads[index - 1][:rows] if index > 0 else None
            each, batch = self._placed[index], LayerBatch(x, out, self._grads[index][:rows], below)
            found = tensors_of(each, gradient)
            self._kernels[index].backward(tensors_of(each, params), found, batch)


def tensors_of(placed: PlacedLayer, flat: Floats) -> Tensors:
    """Views of the tensors of a layer in flat[P]."""
    shapes = placed.layer.tensors().values()
    return [
        flat[offset : offset + math.prod(shape)].reshape(shape)
        for offset, shape in zip(placed.offsets, shapes, strict=True)
    ]


class ConvolutionByPatches:
    """A convolution as the product of all patches of the input with the filters."""

    def __init__(self, layer: Convolution, kernels: Kernels, xp: Any) -> None:
        self._layer, self._kernels, self._xp = layer, kernels, xp

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        weights, bias = tensors
        filters, kind = self._layer.filters, ACTIVATIONS[self._layer.activation]
        flat = weights.reshape(-1, filters), bias, kind, filters, out.reshape(-1, filters)
        self._kernels.dense_forward(self._patches(x), *flat)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, out, grad, below = batch
        layer, kernels = self._layer, self._kernels
        weights, filters = tensors[0].reshape(-1, layer.filters), layer.filters
        kernels.activate_backward(ACTIVATIONS[layer.activation], out, grad)
        flat, patches = grad.reshape(-1, filters), self._patches(x)
        kernels.weight_gradient(patches, flat, gradients[0].reshape(-1, filters), gradients[1])
        if below is not None:
            kernels.dense_backward(flat, weights, ACTIVATIONS["linear"], patches, patches)
            padded = self._padded(len(x), x.dtype)
            for cell, (rows, columns) in enumerate(self._cells()):
                part = patches.reshape(*self._of_cells(len(x)))[..., cell, :]
                padded[:, rows, columns] += part
            below[:] = self._inside(padded).reshape(below.shape)

    def _patches(self, x: Floats) -> Floats:
        """The inputs of each output: [B * height * width, cells of a filter * channels]."""
        padded = self._padded(len(x), x.dtype)
        self._inside(padded)[:] = x.reshape(len(x), *self._layer.inputs)
        patches = self._xp.empty(self._of_cells(len(x)), x.dtype)
        for cell, (rows, columns) in enumerate(self._cells()):
            patches[..., cell, :] = padded[:, rows, columns]
        found: Floats = patches.reshape(-1, math.prod(patches.shape[-2:]))
        return found

    def _padded(self, rows: int, dtype: Any) -> Any:
        """Zeros for pictures with the zeros around them."""
        layer = self._layer
        sizes = zip(layer.inputs, layer.border, (layer.height, layer.width), strict=False)
        around = (n + before + layer.dilation * (k - 1) for n, before, k in sizes)
        return self._xp.zeros((rows, *around, layer.inputs[2]), dtype)

    def _inside(self, padded: Any) -> Any:
        (top, left), (height, width, _) = self._layer.border, self._layer.inputs
        return padded[:, top : top + height, left : left + width]

    def _of_cells(self, rows: int) -> tuple[int, ...]:
        layer = self._layer
        return rows, *layer.outputs[:2], layer.height * layer.width, layer.inputs[2]

    def _cells(self) -> list[tuple[slice, slice]]:
        """Where the inputs of all outputs for each cell of a filter are in padded pictures."""
        layer = self._layer
        height, width, _ = layer.outputs
        step, spread = layer.stride, layer.dilation
        return [
            (
                slice(i * spread, i * spread + (height - 1) * step + 1, step),
                slice(j * spread, j * spread + (width - 1) * step + 1, step),
            )
            for i in range(layer.height)
            for j in range(layer.width)
        ]


class PoolingByCells:
    """Pooling as operations on the cells that have the same place in their windows."""

    def __init__(self, layer: Pooling, kernels: Kernels, xp: Any) -> None:
        self._layer, self._xp = layer, xp

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        result, add = self._of_windows(out), self._xp.add if self._layer.mean else self._xp.maximum
        first, *others = self._cells(x)
        result[:] = first
        for cells in others:
            add(result, cells, out=result)
        if self._layer.mean:
            result /= 1 + len(others)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, out, grad, below = batch
        if below is None:
            return
        below[:] = 0
        change, places = self._of_windows(grad), self._cells(below)
        if self._layer.mean:
            change /= len(places)
            for place in places:
                place[:] = change
            return
        largest = self._of_windows(out)  # the first of equal ones has the gradient
        for cells, place in zip(self._cells(x), places, strict=True):
            place[:] = change * (cells == largest)
            change *= cells != largest

    def _of_windows(self, values: Floats) -> Any:
        return values.reshape(len(values), *self._layer.outputs)

    def _cells(self, x: Floats) -> list[Any]:
        """Views of x[B, m], one for each cell of a window: [B, height, width, channels]."""
        layer = self._layer
        height, width, _ = layer.outputs
        rows, columns = layer.height, layer.width
        pictures = x.reshape(len(x), *layer.inputs)
        return [
            pictures[:, i : height * rows : rows, j : width * columns : columns]
            for i in range(rows)
            for j in range(columns)
        ]


class LstmBySteps:
    """An LSTM layer as products and array operations for one step after the other."""

    def __init__(self, layer: Lstm, kernels: Kernels, xp: Any) -> None:
        self._layer, self._kernels, self._xp = layer, kernels, xp
        self._gates: Any = None  # [B, T, 4 H] of the batch: input, forget, candidate, output
        self._cells: Any = None  # [B, T, H]
        self._states: Any = None  # [B, T, H]

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        (_, steps, features), units, xp = self._layer.inputs, self._layer.units, self._xp
        weights, recurrent, bias = tensors
        rows, none = len(x), xp.zeros(4 * units, x.dtype)
        gates = xp.empty((rows * steps, 4 * units), x.dtype)
        self._product(x.reshape(rows * steps, features), weights, bias, gates)
        gates = self._gates = gates.reshape(rows, steps, 4 * units)
        cells, states = (xp.zeros((rows, steps, units), x.dtype) for _ in range(2))
        self._cells, self._states = cells, states
        added = xp.empty((rows, 4 * units), x.dtype)
        for t in range(steps):
            if t > 0:
                self._product(xp.ascontiguousarray(states[:, t - 1]), recurrent, none, added)
                gates[:, t] += added
            i, f, g, o = self._parts(t)
            f += 1
            for each in (i, f, o):  # the logistic function
                each[:] = 0.5 * xp.tanh(0.5 * each) + 0.5
            g[:] = xp.tanh(g)
            cells[:, t] = i * g
            if t > 0:
                cells[:, t] += f * cells[:, t - 1]
            states[:, t] = o * xp.tanh(cells[:, t])
        out.reshape(rows, -1, units)[:] = states[:, steps - self._layer.outputs[1] :]

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, _, grad, below = batch
        (_, steps, features), units, xp = self._layer.inputs, self._layer.units, self._xp
        rows, first = len(x), steps - self._layer.outputs[1]
        given, cells = grad.reshape(rows, -1, units), self._cells
        state, cell = (xp.zeros((rows, units), x.dtype) for _ in range(2))
        for t in reversed(range(steps)):
            if t >= first:
                state += given[:, t - first]
            i, f, g, o = self._parts(t)
            seen = xp.tanh(cells[:, t])
            change = cell + state * o * (1 - seen * seen)
            cell = change * f
            before = cells[:, t - 1] if t > 0 else 0 * cell
            f[:] = change * before * f * (1 - f)
            o[:] = state * seen * o * (1 - o)
            inputs = change * g * i * (1 - i)
            g[:] = change * i * (1 - g * g)
            i[:] = inputs
            self._back(xp.ascontiguousarray(self._gates[:, t]), tensors[1], state)
        flat, earlier = self._gates.reshape(rows * steps, -1), xp.zeros_like(self._states)
        earlier[:, 1:] = self._states[:, :-1]
        kernels, inputs = self._kernels, x.reshape(rows * steps, features)
        kernels.weight_gradient(inputs, flat, gradients[0], gradients[2])
        kernels.weight_gradient(earlier.reshape(-1, units), flat, gradients[1], flat[:0, 0])
        if below is not None:
            self._back(flat, tensors[0], below.reshape(rows * steps, features))

    def _product(self, x: Any, weights: Floats, bias: Floats, out: Any) -> None:
        linear = ACTIVATIONS["linear"]
        self._kernels.dense_forward(x, weights, bias, linear, out.shape[1], out)

    def _back(self, grad: Any, weights: Floats, out: Any) -> None:
        self._kernels.dense_backward(grad, weights, ACTIVATIONS["linear"], out, out)

    def _parts(self, step: int) -> list[Any]:
        """Views of the four gates of a step, [B, H] each."""
        units = self._layer.units
        return [self._gates[:, step, n * units : (n + 1) * units] for n in range(4)]


KINDS: Final[Mapping[type, Callable[..., LayerKernels]]] = {
    Convolution: ConvolutionByPatches,
    Pooling: PoolingByCells,
    Lstm: LstmBySteps,
}


def backbone_of(
    placed: Sequence[PlacedLayer], kernels: Kernels, xp: Any, dtype: Any, rows: int
) -> Backbone:
    """Return the layers on the backend `kernels`, whose arrays `xp` creates."""
    kinds = {kind: _with(made, kernels, xp) for kind, made in KINDS.items()}
    return Backbone(placed, kinds, lambda shape: xp.empty(shape, dtype), rows)


def _with(
    made: Callable[..., LayerKernels], kernels: Kernels, xp: Any
) -> Callable[[BackboneLayer], LayerKernels]:
    return lambda layer: made(layer, kernels, xp)
