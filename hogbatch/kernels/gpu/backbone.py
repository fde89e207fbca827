"""The operations for layers below the dense ones: one kernel launch each."""

from functools import cache

import cupy
import numpy as np

from hogbatch.config.backbone_layers import Convolution, Pooling
from hogbatch.data.batch import csr_inputs
from hogbatch.kernels.gpu.dense import DenseKernels, add_bias_and_activate
from hogbatch.kernels.gpu.launch import WARP, kernel, over_cells

_WINDOWS = np.dtype([("windows", np.int32, 12)])  # as in backbone.cu; CuPy passes one by value


class BackboneKernels(DenseKernels):
    """Those operations."""

    def gather_augmented(self, inputs, rows, numbers, given, key, out):
        changes = *given.shape, int(given.flip), given.shift
        arrays = inputs.dense, rows, numbers, key, out
        over_cells(kernel("backbone", "gather_augmented"), out.size, out.size, *changes, *arrays)

    def look_up(self, x, vectors, out):
        function = kernel("backbone", "look_up")
        over_cells(function, out.size, out.size, *vectors.shape, x, vectors, out)

    def embedding_scratch(self, count, ids, width):
        numbers = cupy.arange(count + 1, dtype=np.int64)
        rows = cupy.empty(count, np.int32), cupy.empty(count, np.float32)
        return numbers, rows, self.csr_scratch(ids, width)

    def step_vectors(self, kind, hyper, x, grad, scratch, slots, vectors):
        numbers, (indices, values), sums = scratch
        function = kernel("backbone", "as_sparse")
        over_cells(function, x.size, x.size, len(vectors), x, indices, values)
        inputs = csr_inputs(numbers, indices, values)
        by_id = grad.reshape(x.size, -1)
        self.csr_step(kind, hyper, inputs, numbers[: x.size], by_id, sums, slots, vectors)

    def take_patches(self, layer, x, out):
        _over_channels(kernel("backbone", "take_patches"), layer, out, out.size, x, out)

    def add_patches(self, layer, patches, out):
        _over_channels(kernel("backbone", "add_patches"), layer, out, out.size, patches, out)

    def pool(self, layer, x, out):
        _over_channels(kernel("backbone", "pool"), layer, out, int(layer.mean), out.size, x, out)

    def pool_backward(self, layer, x, out, grad, activation, below):
        if out.shape[1] * layer.height * layer.width < below.shape[1]:
            below.fill(0)  # cells of a rest that fills no window
        arguments = int(layer.mean), out.size, activation, x, out, grad, below
        _over_channels(kernel("backbone", "pool_backward"), layer, out, *arguments)

    def first_steps(self, x, starts):
        over_cells(kernel("backbone", "first_steps"), len(x) * WARP, *x.shape, x, starts)

    def reverse_steps(self, starts, x, out):
        function = kernel("backbone", "reverse_steps")
        over_cells(function, out.size, out.size, *out.shape[1:], starts, x, out)

    def set_in_padding(self, starts, value, gates):
        sizes = gates.size, *gates.shape[1:], gates.strides[1] // gates.itemsize
        over_cells(kernel("backbone", "set_in_padding"), gates.size, *sizes, value, starts, gates)

    def lstm_step(self, gates, added, before, cells, states):
        arrays = gates, added, before, cells, states
        over_cells(kernel("backbone", "lstm_step"), cells.size, cells.size, cells.shape[1], *arrays)

    def lstm_step_backward(self, gates, before, cells, given, state, cell):
        function = kernel("backbone", "lstm_step_backward")
        _step_backward(function, (gates, before, cells), given, state, cell)

    def gru_step(self, gates, added, before, states):
        arrays = gates, added, before, states
        function = kernel("backbone", "gru_step")
        over_cells(function, states.size, states.size, states.shape[1], *arrays)

    def gru_step_backward(self, gates, added, before, given, state, direct):
        function = kernel("backbone", "gru_step_backward")
        _step_backward(function, (gates, added, before), given, state, direct)

    def add_and_activate(self, x, kind, out):
        add_bias_and_activate(x.reshape(-1), kind, out.size, out.reshape(1, -1))

    def normalise(self, x, tensors, kind, kept, out):
        function = kernel("backbone", "normalise")
        over_cells(function, len(x) * WARP, *x.shape, kind, x, *tensors, *kept, out)

    def normalise_backward(self, kept, tensors, grad, gradients, below):
        self.bias_gradient(grad, gradients[1])
        arrays = *kept, tensors[0], grad, below
        over_cells(kernel("backbone", "normalise_backward"), len(grad) * WARP, *grad.shape, *arrays)
        self.bias_gradient(kept[0], gradients[0])


def _step_backward(function, first, given, state, rest) -> None:
    stride = given.strides[0] // given.itemsize if given.size else 0
    over_cells(function, state.size, state.size, state.shape[1], *first, stride, given, state, rest)


def _over_channels(function, layer, values, *arguments) -> None:
    """Launch with a thread for 4 channels of `values`, or for one if that is no divisor."""
    together = 4 if layer.inputs[2] % 4 == 0 else 1
    over_cells(function, values.size // together, _windows(layer), *arguments)


@cache
def _windows(layer: Convolution | Pooling) -> np.ndarray:
    cells = layer.height, layer.width
    if isinstance(layer, Convolution):
        steps = layer.stride, layer.stride, layer.dilation, *layer.border
    else:
        steps = *cells, 1, 0, 0
    windows = np.zeros(1, _WINDOWS)
    windows["windows"][0] = *layer.inputs, *layer.outputs[:2], *cells, *steps
    return windows
