"""The training loop of networks with a backbone: compiled kernels, called layer by layer.

A batch of pictures takes milliseconds, so these calls take little of the time, and only the kinds
of layers that a network has are compiled. The dense layers above are computed by
`kernels.cpu.network`.

All gradients of the backbone are computed before its update, so a batch has other stages than one
of dense layers: the forward passes of the backbone; the dense layers with their updates; the
backward passes of the backbone; its update.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from hogbatch.config import backbone_layers as kinds
from hogbatch.data.batch import dense_inputs, read_only
from hogbatch.jit import kernel
from hogbatch.kernels.backbone import Backbone, LayerBatch, LayerKernels, PlacedLayer, Tensors
from hogbatch.kernels.backbone_layers import EmbeddingByRows, LayerNormalisation, ResidualSum
from hogbatch.kernels.contract import ACTIVATIONS, ROWS, SKIPPED, Floats
from hogbatch.kernels.cpu import convolution, dense, embedding, network, norm, pooling, recurrent
from hogbatch.kernels.cpu.losses import loss_and_metrics, store_scores
from hogbatch.kernels.cpu.model import (
    FAN_IN,
    FAN_OUT,
    WEIGHTS,
    WIDTH,
    corrected,
    vector,
    with_own_slots,
    without_decay,
)
from hogbatch.kernels.cpu.network import backward, differentiate_loss, forward, links_for, matrix
from hogbatch.kernels.cpu.rules import step_row
from hogbatch.kernels.dropout import key_of
from hogbatch.kernels.reference import NUMPY_KERNELS


class CompiledConvolution(LayerKernels):
    """A convolution by `kernels.cpu.convolution`."""

    def __init__(self, layer: kinds.Convolution, rows: int) -> None:
        (height, width, channels), (top, left) = layer.inputs, layer.border
        out_height, out_width, filters = layer.outputs
        self._shape = convolution.Geometry(
            *(height, width, channels, out_height, out_width, filters),
            *(layer.height, layer.width, layer.stride, layer.dilation, top, left),
            (out_height - 1) * layer.stride + (layer.height - 1) * layer.dilation + 1,
            (out_width - 1) * layer.stride + (layer.width - 1) * layer.dilation + 1,
        )
        self._reversed = convolution.reversed_geometry(self._shape)
        self._space = convolution.scratch(self._shape)
        self._kind = ACTIVATIONS[layer.activation]

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        weights, bias = tensors
        given = self._shape, weights.reshape(-1), bias, self._kind, self._space
        convolution.convolve(x, *given, out)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, _, grad, below, activation, padded = batch
        weights, bias = gradients
        for each in gradients:
            each[:] = 0
        convolution.add_gradients(x, self._shape, grad, self._space, weights.reshape(-1), bias)
        if below is not None:
            given = self._shape, self._reversed, tensors[0].reshape(-1)
            convolution.pass_down(*given, grad, self._space, x, padded, below)
            dense.activate_backward(activation, x, below)


class CompiledPooling(LayerKernels):
    """Pooling by `kernels.cpu.pooling`."""

    def __init__(self, layer: kinds.Pooling, rows: int) -> None:
        (_, width, channels), (out_height, out_width, _) = layer.inputs, layer.outputs
        sizes = width, channels, out_height, out_width, layer.height, layer.width
        self._windows = pooling.Windows(*sizes, layer.mean)

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        pooling.pool(x, self._windows, out)

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, out, grad, below, activation, _ = batch
        if below is not None:
            pooling.pass_down(x, self._windows, out, grad, below)
            dense.activate_backward(activation, x, below)


class CompiledRecurrent(LayerKernels):
    """An LSTM or GRU layer by `kernels.cpu.recurrent`."""

    kernels = NUMPY_KERNELS  # of BothDirections

    def __init__(self, layer: kinds.Recurrent, rows: int) -> None:
        self._layer = layer
        (_, steps, features), units = layer.inputs, layer.units
        most = rows * steps
        shapes = (most, features), (most, 4 * units), *2 * [(most + rows, units)]
        rest = (layer.gates, max(features, units)), *2 * [(rows, units)]
        arrays = [np.empty(shape, np.float32) for shape in (*shapes, *rest)]
        if layer.gru:
            arrays[2] = arrays[3]
        numbers = (np.empty(size, np.int64) for size in (rows, rows, steps + 1))
        self._space = recurrent.RecurrentScratch(*arrays, *numbers)
        self.values = self._space[:4]

    def forward(self, tensors: Tensors, x: Floats, out: Floats) -> None:
        (_, steps, features), (_, given, units) = self._layer.inputs, self._layer.outputs
        recurrent.pack(x, features, self._layer.padded, self._space)
        recurrent.run(*tensors, self._space, steps)
        recurrent.unpack(self._space.states, 1, self._space, out.reshape(len(x), given, units))

    def backward(self, tensors: Tensors, gradients: Tensors, batch: LayerBatch) -> None:
        x, _, grad, below, activation, _ = batch
        (_, steps, features), (_, given, units) = self._layer.inputs, self._layer.outputs
        by_step = grad.reshape(len(x), given, units)
        recurrent.run_back(by_step, tensors[1], self._space, steps)
        recurrent.gradients(self._space, *gradients, steps)
        if below is not None:
            recurrent.pass_down(tensors[0], self._space, below.reshape(len(x), steps, features))
            dense.activate_backward(activation, x, below)


STAGES: Final = 4  # of a batch: backbone forward, dense layers, backbone backward, its update
EMPTY: Final[Any] = partial(np.empty, dtype=np.float32)
KINDS: Final[Mapping[type, Callable[[Any, int], LayerKernels]]] = {
    kinds.Embedding: partial(EmbeddingByRows, kernels=embedding, empty=EMPTY),
    kinds.Recurrent: CompiledRecurrent,
    kinds.Convolution: CompiledConvolution,
    kinds.Pooling: CompiledPooling,
    kinds.Residual: partial(ResidualSum, kernels=dense, empty=EMPTY),
    kinds.Normalisation: partial(LayerNormalisation, kernels=norm, empty=EMPTY),
}


class BatchSpace(NamedTuple):
    """The arrays for batches of up to `layers.rows` rows."""

    layers: Backbone
    dense: Any  # network.Workspace of the dense layers
    gradient: Floats  # [P]; only that of the backbone is used
    x: Any  # stands for the inputs of the dense layers, which are in `dense` already


class BackboneLoop:
    """The functions of `kernels.cpu.loops.CompiledLoop` for networks with a backbone."""

    def __init__(self, placed: Sequence[PlacedLayer]) -> None:
        self._placed = placed
        self._unused: list[BatchSpace] = []  # kept for later leases and batches

    def train(self, model, inputs, labels, rows, lease, hyper, head, fence, totals):
        """Train on `rows`; see `kernels.cpu.network.train`."""
        size = min(lease.batch_size, len(rows))
        for start in range(0, len(rows), size):
            if fence[0] != lease.fence:
                return
            data = model, inputs, labels, rows[start : start + size]
            space = self.open_batches(*data, size, head)
            self.run_stages(*data, lease, hyper, space, totals, 0, STAGES, True)

    def evaluate(self, model, inputs, labels, rows, lease, fence, totals, stored):
        """Add the losses and metrics of `rows`; see `kernels.cpu.network.evaluate`.

        It begins with no rows, so that a lease that is revoked compiles the kernels, too.
        """
        size, lease = min(lease.batch_size, len(rows)), lease._replace(augmentation=None)
        space = self.open_batches(model, inputs, labels, rows, size, None)
        for start in range(-size, len(rows), size):
            if start >= 0 and fence[0] != lease.fence:
                break
            part = rows[max(0, start) : start + size]
            self._forward(model, inputs, part, lease, space)
            evaluate_dense(model, space.x, labels, part, lease, space.dense, totals, stored)
        self._unused.append(space)

    def open_batches(self, model, inputs, labels, rows, size, head):
        """Return unused arrays for batches of at least `size` rows."""
        while self._unused:
            if (space := self._unused.pop()).layers.rows >= size:
                return space
        layers = Backbone(self._placed, KINDS, EMPTY, size)
        dense_space = network.workspace(model.table, np.bool_(False), size)
        x = dense_inputs(np.empty((0, model.table[0, FAN_IN]), np.float32))
        x, gradient = type(x)(*map(read_only, x)), np.zeros(len(model.params), np.float32)
        return BatchSpace(layers, dense_space, gradient, x)

    def run_stages(
        self, model, inputs, labels, rows, lease, hyper, space, totals, first, stop, down
    ):
        """Compute some stages of a batch; see `kernels.cpu.loops`. The last one ends the batch."""
        layers, size = space.layers, len(rows)
        if first <= 0 < stop:
            self._forward(model, inputs, rows, lease, space)
        lease = lease._replace(augmentation=None)  # compiled kernels do not need it
        if first <= 1 < stop:
            given = model, space.x, labels, rows, lease, hyper, space.dense, totals
            below, grad = train_dense(*given), layers.grad(size)
            grad[:] = below[:, : grad.shape[1]]
            if totals[SKIPPED]:  # 0 times a value that overflowed is nan
                for values in layers.values:
                    np.nan_to_num(values, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
            dense.activate_backward(layers.activation, layers.out(size), grad)
        if first <= 2 < stop:
            layers.backward(model.params, size, space.gradient)
        if first <= 3 < stop:
            exact = corrected(lease.optimizer, hyper, model.steps[0])
            flats = model.params, model.first, model.second
            layers.step_rows(lease.optimizer, exact, size, flats)
            for each in self._placed[self._placed[0].layer.by_rows :]:
                for offset, shape in zip(each.offsets, each.layer.tensors().values(), strict=True):
                    found = space.gradient[offset : offset + math.prod(shape)]
                    decayed = len(shape) > 1  # biases are not
                    step_tensor(model, offset, decayed, lease, hyper, found)
            self._unused.append(space)

    def _forward(self, model, inputs, rows, lease, space):
        """Compute the backbone of `rows`; its outputs become the inputs of the dense layers."""
        layers, given = space.layers, lease.augmentation
        gathered = layers.inputs(len(rows))
        if given is None:
            np.take(inputs.dense, rows, axis=0, out=gathered, mode="clip")
        else:
            key = key_of(given.seed, model.steps[0] + 1)
            NUMPY_KERNELS.gather_augmented(inputs, rows, rows, given, key, gathered)
        out, fan_in = layers.forward(model.params, len(rows)), model.table[0, FAN_IN]
        x = space.dense.activations[: len(rows) * fan_in].reshape(len(rows), fan_in)
        x[:, : out.shape[1]], x[:, out.shape[1] :] = out, 0


@kernel
def train_dense(model, inputs, labels, rows, lease, hyper, space, totals):
    """Make one update of the dense layers; return the gradient [B, K] of their inputs."""
    first, second, layers = np.int64(0), np.int64(1), model.table.shape[0]
    size, links, down = rows.shape[0], links_for(np.empty(0, np.int32), 0), np.bool_(True)
    scores = forward(model, first, layers, inputs, rows, space, lease.dropout)
    grad = matrix(space.grads, space.starts[layers], size, scores.shape[1])
    differentiate_loss(model, labels, rows, lease, scores, grad, space, totals)
    exact = corrected(lease.optimizer, hyper, model.steps[0])
    backward(model, second, layers, down, inputs, rows, lease, exact, links, space)
    fan_in, fan_out = model.table[0, FAN_IN], model.table[0, FAN_OUT]
    above = matrix(space.grads, space.starts[1], size, fan_out)
    weights = matrix(model.params, model.table[0, WEIGHTS], fan_in, fan_out)
    below = matrix(space.grads, space.starts[0], size, fan_in)
    dense.pass_all_down(above, weights, space.dense, below)
    backward(model, first, second, down, inputs, rows, lease, exact, links, space)
    return below


@kernel
def evaluate_dense(model, inputs, labels, rows, lease, space, totals, stored):
    """Add the losses and metrics of a batch, and store its scores."""
    first, layers = np.int64(0), model.table.shape[0]
    width = model.table[layers - 1, WIDTH]
    scores = forward(model, first, layers, inputs, rows, space, None)
    loss_and_metrics(lease.loss, labels, rows, width, scores, totals)
    store_scores(rows, width, scores, stored)
    totals[ROWS] += rows.shape[0]


@kernel
def step_tensor(model, offset, decayed, lease, hyper, gradient):
    """Update the tensor at params[offset]; the slots are the thread's own."""
    exact = corrected(lease.optimizer, hyper, model.steps[0])
    own, size = with_own_slots(lease.optimizer, exact, lease.threads), gradient.shape[0]
    if not decayed:
        own = without_decay(own)
    first, second = vector(model.own_first, offset, size), vector(model.own_second, offset, size)
    step_row(lease.optimizer, own, gradient, first, second, vector(model.params, offset, size))
