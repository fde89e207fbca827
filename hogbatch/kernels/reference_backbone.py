"""The operations for layers below the dense ones, in plain NumPy; see `kernels.reference`.

Rows of x[B, m] and out[B, n] are the inputs and outputs of a layer, pictures [height, width,
channels]. `kernels.backbone` composes layers of them, and of matrix products.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.augmentation import LAYER, Augmentation
from hogbatch.config.backbone_layers import Convolution, Pooling
from hogbatch.data.batch import Inputs
from hogbatch.kernels import contract
from hogbatch.kernels.contract import Floats, Rows
from hogbatch.kernels.dropout import SPREAD, mixed
from hogbatch.kernels.reference_losses import quiet, sigmoid


class BackboneKernels:
    """The operations; `kernels.reference.Kernels` inherits them."""

    @quiet
    def gather_augmented(
        self, inputs: Inputs, rows: Rows, numbers: Rows, given: Augmentation, key: Any, out: Floats
    ) -> None:
        """out[B, F] = dense inputs of `rows`, changed as `config.augmentation` describes.

        `key` is a uint32[1] of the backend, and `numbers`[B] are row numbers in the set.
        """
        (height, width, channels), flip, shift, _ = given
        first = mixed(mixed(key + np.uint32(LAYER)) + numbers.astype(np.uint32))
        drawn = mixed(first[:, None] + np.arange(3, dtype=np.uint32) * SPREAD).astype(np.int64)
        down, across = ((drawn[:, 1:] * (2 * shift + 1) >> 32) - shift).T[:, :, None]
        x = np.abs((drawn[:, :1] >> 31 & flip) * (width - 1) - np.arange(width)) + across
        y = (np.arange(height) + down).clip(0, height - 1) + rows[:, None] * height
        cells = y[:, :, None] * width + x.clip(0, width - 1)[:, None]
        pictures = inputs.dense.reshape(-1, channels)
        np.take(pictures, cells, axis=0, out=out.reshape(*cells.shape, channels), mode="clip")

    def look_up(self, x: Floats, vectors: Floats, out: Floats) -> None:
        """out[B, T * E] = the row of vectors[V, E] of each id x[B, T], or 0 if it is no id."""
        ids = ids_in(x, len(vectors))
        found = out.reshape(*ids.shape, -1)
        found[:] = vectors[ids]
        found[ids == 0] = 0

    def take_patches(self, layer: Convolution, x: Floats, out: Floats) -> None:
        """out[B * height * width, cells * channels] = the inputs of each output, or 0 outside."""
        padded = _padded(layer, len(x), x.dtype)
        _inside(layer, padded)[:] = x.reshape(len(x), *layer.inputs)
        for part, (rows, columns) in _by_cell(layer, out):
            part[:] = padded[:, rows, columns]

    def add_patches(self, layer: Convolution, patches: Floats, out: Floats) -> None:
        """out[B, m] = the sums over all patches that contain an input, the transpose of that."""
        padded = _padded(layer, len(out), out.dtype)
        for part, (rows, columns) in _by_cell(layer, patches):
            padded[:, rows, columns] += part
        out[:] = _inside(layer, padded).reshape(out.shape)

    @quiet
    def pool(self, layer: Pooling, x: Floats, out: Floats) -> None:
        """out[B, n] = the largest value of each window of x[B, m], or nan; or the mean."""
        result, cells = out.reshape(len(out), *layer.outputs), _of_windows(layer, x)
        result[:] = cells[0]
        for each in cells[1:]:
            (np.add if layer.mean else np.maximum)(result, each, out=result)
        if layer.mean:
            result /= len(cells)

    @quiet
    def pool_backward(
        self,
        layer: Pooling,
        x: Floats,
        out: Floats,
        grad: Floats,
        activation: int,
        below: Floats,
    ) -> None:
        """below[B, m] = d(pool)/dx * f'(z), from grad[B, n] and x = f(z); see `dense_backward`.

        The first of equal largest values has the gradient.
        """
        below[:] = 0
        change, largest = (each.reshape(len(each), *layer.outputs) for each in (grad, out))
        places, taken = _of_windows(layer, below), np.zeros(change.shape, bool)
        for cells, place in zip(_of_windows(layer, x), places, strict=True):
            if layer.mean:
                place[:] = change / len(places)
            else:
                first = (cells == largest) & ~taken
                place[:] = change * first
                taken |= first
        multiply_by_slope(activation, x, below)

    def first_steps(self, x: Floats, starts: Floats) -> None:
        """starts[B] = the steps in front of x[B, T, F] whose values are all 0: padding."""
        found = np.count_nonzero(x, axis=2) > 0
        starts[:] = np.where(found.any(axis=1), found.argmax(axis=1), x.shape[1])

    def reverse_steps(self, starts: Floats, x: Floats, out: Floats) -> None:
        """out[B, T, F] = x[B, T, F] with the steps from starts[B] on reversed, and those before."""
        order = (starts.astype(np.int64)[:, None] - 1 - np.arange(x.shape[1])) % x.shape[1]
        out[:] = np.take_along_axis(x, order[:, :, None], axis=1)

    def set_in_padding(self, starts: Floats, value: float, gates: Floats) -> None:
        """gates[T, B, H] = `value` in the first starts[B] steps, which leaves the states at 0.

        With -CLOSED for the sums of the input gates (LSTM) and CLOSED for those of the update gates
        (GRU), all gradients of gates are 0, too. Rows of H values may be parts of longer ones.
        """
        gates[np.arange(len(gates))[:, None] < starts] = value

    @quiet
    def lstm_step(
        self, gates: Floats, added: Floats, before: Floats, cells: Floats, states: Floats
    ) -> None:
        """Add added[B, 4 H] to gates[B, 4 H] and activate them; set cells[B, H] and states[B, H].

        `before`[B, H] are the cells of the step before. The gates are those of input, forgetting,
        candidates and output; the second one has a bias of 1 besides its own, so that an untrained
        layer remembers (Jozefowicz et al. 2015).
        """
        gates += added
        i, f, g, o = np.split(gates, 4, axis=1)  # views
        i[:], f[:], g[:], o[:] = sigmoid(i), sigmoid(f + 1), np.tanh(g), sigmoid(o)
        cells[:] = f * before + i * g
        states[:] = o * np.tanh(cells)

    @quiet
    def lstm_step_backward(
        self,
        gates: Floats,
        before: Floats,
        cells: Floats,
        given: Floats,
        state: Floats,
        cell: Floats,
    ) -> None:
        """Replace the activated gates[B, 4 H] by the gradients of their sums.

        The gradient of the states is state[B, H] + given[B, H] (or [B, 0]: nothing), that of the
        `cells` is cell[B, H], which becomes that of the cells `before`. A row of `given` may be
        part of a longer one.
        """
        total = state + given if given.size else state
        i, f, g, o = np.split(gates, 4, axis=1)
        seen = np.tanh(cells)
        change = cell + total * o * (1 - seen * seen)
        cell[:] = change * f
        inputs = change * g * i * (1 - i)
        f[:], o[:] = change * before * f * (1 - f), total * seen * o * (1 - o)
        g[:] = change * i * (1 - g * g)
        i[:] = inputs

    @quiet
    def gru_step(self, gates: Floats, added: Floats, before: Floats, states: Floats) -> None:
        """Set states[B, H] from those `before`, and activate the gates.

        gates[B, 3 H] are the sums of candidates, reset and update from the inputs; added[B, 3 H]
        those of reset, update and candidates from the states, the last of which are kept.
        """
        (n, r, z), (more_r, more_z, m) = (np.split(each, 3, axis=1) for each in (gates, added))
        r[:], z[:] = sigmoid(r + more_r), sigmoid(z + more_z)
        n[:] = np.tanh(n + r * m)
        states[:] = n + z * (before - n)

    @quiet
    def gru_step_backward(
        self,
        gates: Floats,
        added: Floats,
        before: Floats,
        given: Floats,
        state: Floats,
        direct: Floats,
    ) -> None:
        """Replace gates[B, 3 H] and added[B, 3 H] by the gradients of these sums.

        The gradient of the states is state[B, H] + direct[B, H] + `given`, as of `lstm_step`.
        `direct` becomes that of the states `before`, except for what `added` depends on.
        """
        total = state + direct + given if given.size else state + direct
        n, r, z = np.split(gates, 3, axis=1)
        more_r, more_z, m = np.split(added, 3, axis=1)
        change = total * (1 - z) * (1 - n * n)
        direct[:] = total * z
        more_z[:] = total * (before - n) * z * (1 - z)
        more_r[:] = change * m * r * (1 - r)
        m[:], n[:] = change * r, change
        r[:], z[:] = more_r, more_z

    @quiet
    def add_and_activate(self, x: Floats, kind: int, out: Floats) -> None:
        """out[B, n] = f(out + x[B, n])."""
        activate(kind, out.shape[1], x, out)

    @quiet
    def normalise(
        self, x: Floats, tensors: Sequence[Floats], kind: int, kept: Sequence[Floats], out: Floats
    ) -> None:
        """out[N, C] = f((1 + gain) normal + bias), where normal[N, C] = (x[N, C] - mean) inverse.

        `tensors` are gain[C] and bias[C]. For the backward pass, normal and inverse[N] =
        1 / sqrt(variance + LEAST_VARIANCE) are `kept`. Mean and variance are those of a row of x.
        """
        (gain, bias), (normal, inverse) = tensors, kept
        np.subtract(x, x.mean(axis=1, keepdims=True), out=normal)
        inverse[:] = 1 / np.sqrt(np.square(normal).mean(axis=1) + contract.LEAST_VARIANCE)
        normal *= inverse[:, None]
        np.multiply(normal, 1 + gain, out=out)
        activate(kind, out.shape[1], bias, out)

    @quiet
    def normalise_backward(
        self,
        kept: Sequence[Floats],
        tensors: Sequence[Floats],
        grad: Floats,
        gradients: Sequence[Floats],
        below: Floats,
    ) -> None:
        """Set the gradients of the tensors, and below[N, C], that of x; `below` may be `grad`.

        grad[N, C] is that of the outputs before activation. `kept` is overwritten.
        """
        (normal, inverse), change = kept, grad * (1 + tensors[0])
        common = normal * (change * normal).mean(axis=1, keepdims=True)
        common += change.mean(axis=1, keepdims=True)
        normal *= grad
        for found, each in zip(gradients, (normal, grad), strict=True):
            each.sum(axis=0, out=found)
        np.multiply(change - common, inverse[:, None], out=below)


def ids_in(x: Floats, ids: int) -> NDArray[np.intp]:
    """The ids x[B, T], from 1 to `ids` - 1, and 0 in place of other numbers."""
    return np.where((x > 0) & (x < ids), x, 0).astype(np.intp)


def activate(kind: int, width: int, bias: Floats, out: Floats) -> None:
    """out[B, H] = f(out + bias[H]); columns from `width` on are zero."""
    out += bias
    real = out[:, :width]
    if kind == contract.RELU:
        np.maximum(real, 0, out=real)
    elif kind == contract.SIGMOID:
        real[:] = sigmoid(real)
    elif kind == contract.TANH:
        np.tanh(real, out=real)
    elif kind == contract.SELU:
        below = contract.SELU_LIMIT * np.expm1(np.minimum(real, 0))
        real[:] = np.where(real > 0, contract.SELU_SLOPE * real, below)
    out[:, width:] = 0


def multiply_by_slope(kind: int, activated: Floats, grad: Floats) -> None:
    """grad[...] *= f'(z), from activated[...] = f(z)."""
    if kind == contract.RELU:
        grad *= activated > 0
    elif kind == contract.SIGMOID:
        grad *= activated * (1 - activated)
    elif kind == contract.TANH:
        grad *= 1 - activated * activated
    elif kind == contract.SELU:
        grad *= np.where(activated > 0, contract.SELU_SLOPE, activated + contract.SELU_LIMIT)


def _padded(layer: Convolution, rows: int, dtype: Any) -> Any:
    """Zeros for pictures with the zeros around them."""
    sizes = zip(layer.inputs, layer.border, (layer.height, layer.width), strict=False)
    around = (n + before + layer.dilation * (k - 1) for n, before, k in sizes)
    return np.zeros((rows, *around, layer.inputs[2]), dtype)


def _inside(layer: Convolution, padded: Any) -> Any:
    (top, left), (height, width, _) = layer.border, layer.inputs
    return padded[:, top : top + height, left : left + width]


def _by_cell(layer: Convolution, patches: Floats) -> list[tuple[Any, tuple[slice, slice]]]:
    """The values of each cell of a filter in all patches, and where they are in padded pictures."""
    height, width, _ = layer.outputs
    step, spread = layer.stride, layer.dilation
    shaped = patches.reshape(-1, height, width, layer.height, layer.width, layer.inputs[2])
    ends = (height - 1) * step + 1, (width - 1) * step + 1
    return [
        (
            shaped[:, :, :, i, j],
            (
                slice(i * spread, i * spread + ends[0], step),
                slice(j * spread, j * spread + ends[1], step),
            ),
        )
        for i in range(layer.height)
        for j in range(layer.width)
    ]


def _of_windows(layer: Pooling, x: Floats) -> list[Any]:
    """Views of x[B, m], one for each cell of a window: [B, height, width, channels]."""
    (height, width, channels), rows, columns = layer.outputs, layer.height, layer.width
    used = x.reshape(len(x), *layer.inputs)[:, : height * rows, : width * columns]
    cells = used.reshape(len(x), height, rows, width, columns, channels)
    return [cells[:, :, i, :, j] for i in range(rows) for j in range(columns)]
