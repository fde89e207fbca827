"""Rows in the form in which a model computes their scores."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from hogbatch.data.batch import DoubleInputs, Inputs, Labels, RawInputs, dense_inputs, multi_labels
from hogbatch.data.memory import numbers_of
from hogbatch.errors import UsageError
from hogbatch.kernels.backbone import Backbone
from hogbatch.kernels.backbone_layers import backbone_of
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.machine.threads import on_all_cores
from hogbatch.model.network import Network
from hogbatch.model.ranking import Lists

Below = Callable[[Inputs], Inputs] | None  # computes the inputs of the dense layers
BATCH: Final = 64  # rows whose results stay in cache


def label_lists(labels: Labels) -> Labels:
    """The labels as lists, of one label each if there is one per row."""
    if len(labels.indptr):
        return labels
    return multi_labels(np.arange(len(labels.values) + 1), labels.values.astype(np.int32))


def slice_lists(lists: Lists, start: int, stop: int) -> Lists:
    """The lists of rows [start, stop)."""
    indptr, indices = lists
    own = indptr[start : stop + 1]
    return own - own[0], indices[own[0] : own[-1]]


def as_inputs(rows: Any, features: int, known: Sequence[str]) -> RawInputs:
    """Convert rows to the form that kernels take, and check their features; may stay float64."""
    inputs: RawInputs
    if isinstance(rows, Inputs | DoubleInputs):
        inputs = rows
    else:
        inputs, columns = numbers_of(rows, features, "the data frame", known)
        if columns != features:
            raise UsageError(f"expected {features} features; got {columns}")
    if not len(inputs.indptr) and inputs.dense.shape[1] != features:
        raise UsageError(f"expected {features} features; got {inputs.dense.shape[1]}")
    if len(inputs.indices) and not 0 <= inputs.indices.min() <= inputs.indices.max() < features:
        raise UsageError(
            f"expected features 0 to {features - 1}; "
            f"got {inputs.indices.min()} to {inputs.indices.max()}"
        )
    return inputs


def inputs_of_dense_layers(
    network: Network, tensors: Mapping[str, Floats], dtype: Any, compiled: bool = False
) -> Below:
    """Computes the inputs of the dense layers from scaled rows; None if these are the rows.

    By NumPy, or in float32 by the `compiled` kernels of training, on all cores.
    """
    if network.backbone is None:
        return None
    params = np.zeros(network.parameters, dtype)
    for tensor in network.tensors():
        if tensor.name.startswith("backbone."):
            tensor.view(params)[:] = tensors[tensor.name]
    placed = network.placed_backbone()
    layers_for: Callable[[int], Backbone] = partial(backbone_of, placed, NUMPY_KERNELS, np, dtype)
    if compiled:
        from hogbatch.kernels.cpu.backbone import EMPTY, KINDS  # here: Numba takes a second

        layers_for = partial(Backbone, placed, KINDS, EMPTY)

    def outputs(part: Inputs) -> Inputs:
        out = np.empty((len(part.dense), math.prod(placed[-1].layer.outputs)), dtype)

        def compute(start: int, stop: int) -> None:
            layers = layers_for(min(BATCH, stop - start))
            for first in range(start, stop, BATCH):
                some = part.dense[first : min(first + BATCH, stop)]
                layers.inputs(len(some))[:] = some
                out[first : first + len(some)] = layers.forward(params, len(some))

        on_all_cores(compute, len(out), BATCH if compiled else len(out))
        return dense_inputs(out)

    return outputs
