"""The operations for layers below the dense ones: one kernel launch each."""

from functools import cache

import numpy as np

from hogbatch.config.backbone import Convolution, Pooling
from hogbatch.kernels.gpu.dense import DenseKernels
from hogbatch.kernels.gpu.launch import kernel, over_cells

_WINDOWS = np.dtype([("windows", np.int32, 12)])  # as in backbone.cu; CuPy passes one by value

_take_patches = kernel("backbone", "take_patches")
_add_patches = kernel("backbone", "add_patches")
_pool = kernel("backbone", "pool")
_pool_backward = kernel("backbone", "pool_backward")
_lstm_step = kernel("backbone", "lstm_step")
_lstm_step_backward = kernel("backbone", "lstm_step_backward")


class BackboneKernels(DenseKernels):
    """Those operations."""

    def take_patches(self, layer, x, out):
        over_cells(_take_patches, _units(layer, out), _windows(layer), out.size, x, out)

    def add_patches(self, layer, patches, out):
        over_cells(_add_patches, _units(layer, out), _windows(layer), out.size, patches, out)

    def pool(self, layer, x, out):
        over_cells(_pool, out.size, _windows(layer), int(layer.mean), out.size, x, out)

    def pool_backward(self, layer, x, out, grad, below):
        if (
            layer.outputs[0] * layer.height * layer.outputs[1] * layer.width * layer.outputs[2]
            < (below.shape[1])
        ):
            below.fill(0)
        arrays = x, out, grad, below
        over_cells(_pool_backward, out.size, _windows(layer), int(layer.mean), out.size, *arrays)

    def lstm_step(self, gates, added, before, cells, states):
        arrays = gates, added, before, cells, states
        over_cells(_lstm_step, cells.size, cells.size, cells.shape[1], *arrays)

    def lstm_step_backward(self, gates, before, cells, given, state, cell):
        stride = given.strides[0] // given.itemsize if given.size else 0
        arrays = gates, before, cells, stride, given, state, cell
        over_cells(_lstm_step_backward, cells.size, cells.size, cells.shape[1], *arrays)


def _units(layer, values) -> int:
    """The number of threads for arrays whose rows have the channels of a layer."""
    return values.size // 4 if layer.inputs[2] % 4 == 0 else values.size


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
