"""A trained model as a graph: the layers above its encoded rows, and the outputs of its loss."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from hogbatch.config import backbone_layers as kinds
from hogbatch.config.losses import LARGEST_LOG, OfNumbers
from hogbatch.errors import UsageError
from hogbatch.export.columns import Operands, add_columns, add_matrix
from hogbatch.export.graph import Graph
from hogbatch.kernels.contract import (
    ACTIVATIONS as KINDS,
    CLOSED,
    LEAST_VARIANCE,
    RELU,
    SELU,
    SELU_LIMIT,
    SELU_SLOPE,
    SIGMOID,
    TANH,
)
from hogbatch.model.trained import Layers, Model

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

ACTIVATIONS: Final[dict[int, tuple[str, dict[str, float]]]] = {
    RELU: ("Relu", {}),
    SELU: ("Selu", {"alpha": SELU_LIMIT / SELU_SLOPE, "gamma": SELU_SLOPE}),
    SIGMOID: ("Sigmoid", {}),
    TANH: ("Tanh", {}),
}


def graph_of(model: Model) -> Graph:
    """The computation of a model, from raw rows to what its loss predicts.

    The outputs are those of OUTPUTS that the loss has: `label` and `probabilities` of classes and
    of lists of labels, `scores` of a loss without probabilities, `value` of numbers. UsageError for
    parts of the model that ONNX has no operators for.
    """
    if model.label_vectors is not None:
        raise UsageError(
            "label vectors cannot be exported; train a model without them (--label-vectors off)"
        )
    graph = Graph()
    if model.table is None:
        operands = add_matrix(graph, model.network.features, model.scaler)
    else:
        operands = add_columns(graph, model.table)
    below = (_below(graph, operands, model, each) for each in (model.tensors, *model.others))
    members = [_scores(graph, *each) for each in zip(below, model.members, strict=True)]
    scores = members[0] if len(members) == 1 else _mean_scores(graph, model, members)
    (_add_numbers if isinstance(model.loss, OfNumbers) else _add_labels)(graph, model, scores)
    return graph


def _below(graph: Graph, operands: Operands, model: Model, tensors: Arrays) -> Operands:
    """The inputs of the dense layers of one member; ONNX has channels before height and width."""
    backbone = model.network.backbone
    if backbone is None:
        return operands
    assert operands.dense is not None
    x = graph.add("Reshape", operands.dense, [-1, *backbone.inputs])
    x = graph.add("Transpose", x, perm=[0, 3, 1, 2])
    inputs = [x]
    for index, layer in enumerate(backbone.layers):
        weights = {name: tensors[f"backbone.{index}.{name}"] for name in layer.tensors()}
        if layer.skipped:
            x = graph.add("Add", x, inputs[-1 - layer.skipped])
        x = LAYERS[type(layer)](graph, x, layer, weights)
        inputs.append(x)
    x = graph.add("Transpose", x, perm=[0, 2, 3, 1])
    dense = graph.add("Reshape", x, [-1, backbone.outputs])
    return operands._replace(dense=dense, features=np.arange(backbone.outputs))


def _embedding(graph: Graph, x: str, layer: kinds.Embedding, weights: Arrays) -> str:
    vectors = weights["vectors"].copy()
    vectors[0] = 0
    ids = graph.cast(graph.add("Reshape", x, [-1, *layer.inputs[:2]]), np.int64)
    return graph.add("Transpose", graph.add("Gather", vectors, ids, axis=0), perm=[0, 3, 1, 2])


def _convolution(graph: Graph, x: str, layer: kinds.Convolution, weights: Arrays) -> str:
    (top, left), sizes = layer.border, zip(layer.outputs, layer.inputs, strict=True)
    rest = [
        max(0, (n - 1) * layer.stride + (k - 1) * layer.dilation + 1 - before - size)
        for (n, size), k, before in zip(
            sizes, (layer.height, layer.width), (top, left), strict=False
        )
    ]
    steps = {"strides": 2 * [layer.stride], "dilations": 2 * [layer.dilation]}
    filters = np.ascontiguousarray(weights["weight"].transpose(3, 2, 0, 1))
    found = graph.add("Conv", x, filters, weights["bias"], pads=[top, left, *rest], **steps)
    return _activated(graph, found, layer, weights)


def _activated(graph: Graph, x: str, layer: kinds.BackboneLayer, weights: Arrays) -> str:
    if layer.activation == "linear":
        return x
    operator, attributes = ACTIVATIONS[KINDS[layer.activation]]
    return graph.add(operator, x, **attributes)


def _normalisation(graph: Graph, x: str, layer: kinds.Normalisation, weights: Arrays) -> str:
    """By several operators, because opset 13 has none for it."""
    centred = graph.add("Sub", x, graph.add("ReduceMean", x, axes=[1], keepdims=1))
    variance = graph.add("ReduceMean", graph.add("Mul", centred, centred), axes=[1], keepdims=1)
    deviation = graph.add("Sqrt", graph.add("Add", variance, np.float32(LEAST_VARIANCE)))
    gain, bias = (weights[name].reshape(-1, 1, 1) for name in ("gain", "bias"))
    scaled = graph.add("Mul", graph.add("Div", centred, deviation), 1 + gain)
    return _activated(graph, graph.add("Add", scaled, bias), layer, weights)


def _pooling(graph: Graph, x: str, layer: kinds.Pooling, weights: Arrays) -> str:
    operator, window = "AveragePool" if layer.mean else "MaxPool", [layer.height, layer.width]
    return graph.add(operator, x, kernel_shape=window, strides=window)


# Operators of LSTM (False) and GRU, their attributes, and the order of the columns of weights,
# recurrent weights and both biases, in which 4 are zeros and 5 ones.
RECURRENT: Final = {
    False: ("LSTM", {}, [[0, 3, 1, 2], [0, 3, 1, 2], [0, 3, 1, 2, 4, 4, 5, 4]]),
    True: ("GRU", {"linear_before_reset": 1}, [[2, 1, 0], [1, 0, 2], [2, 1, 0, 4, 4, 3]]),
}


def _recurrent(graph: Graph, x: str, layer: kinds.Recurrent, weights: Arrays) -> str:
    """ONNX has the steps first, the gates in another order, and two biases."""
    (_, steps, features), units, directions = layer.inputs, layer.units, len(layer.directions)
    x = graph.add("Reshape", graph.add("Transpose", x, perm=[3, 0, 1, 2]), [steps, -1, features])
    operator, attributes, orders = RECURRENT[layer.gru]
    constants = np.zeros(units, np.float32), np.ones(units, np.float32)
    parts = [[*np.split(each.T, each.shape[-1] // units), *constants] for each in weights.values()]
    stacked = [
        np.stack([np.concatenate([columns[m] for m in order]) for columns in parts[n::3]])
        for n, order in enumerate(orders)
    ]
    used = None
    if layer.padded:
        x, used = _with_padding(graph, x, layer)
        closing, n = np.zeros((directions, layer.gates, directions), np.float32), range(directions)
        closing[n, :units, n] = CLOSED if layer.gru else -CLOSED  # of the update or input gate
        stacked[0] = np.concatenate([stacked[0], closing], axis=2)
    way = "bidirectional" if layer.both else "forward"
    found = graph.add(operator, x, *stacked, hidden_size=units, direction=way, **attributes)
    if used is not None:
        found = graph.add("Mul", found, used)
        if layer.last:
            found = graph.add("Unsqueeze", graph.add("ReduceSum", found, [0], keepdims=0), [0])
    elif layer.last:  # the second direction ends at the first step
        flat = graph.add("Reshape", found, [steps * directions, -1, units])
        ends = [(steps - 1) * directions, 1][:directions]
        found = graph.add("Unsqueeze", graph.add("Gather", flat, ends, axis=0), [0])
    found = graph.add("Transpose", found, perm=[2, 1, 3, 0])
    return graph.add("Reshape", found, [-1, directions * units, 1, layer.outputs[1]])


def _with_padding(graph: Graph, x: str, layer: kinds.Recurrent) -> tuple[str, str]:
    """The inputs [T, N, F + D] with whether a step is padding for each of D directions.

    Their weights close a gate, so that states stay 0 until a direction has reached a word. The
    second result [T, D, N, 1] is 1 for states that are outputs, and 0 for those of padding.
    """
    steps, count = layer.inputs[1], len(layer.directions)
    size, until = graph.add("ReduceSum", graph.add("Abs", x), [2], keepdims=0), np.tri(steps)
    seen = graph.add("MatMul", np.stack([until, until.T][:count], dtype=np.float32), size)
    words = graph.cast(graph.add("Greater", seen, np.float32(0)), np.float32)  # [D, T, N]
    padding = graph.add("Transpose", graph.add("Sub", np.float32(1), words), perm=[1, 2, 0])
    each = np.eye(steps)
    used = [np.diag(each[-1]), each - np.eye(steps, k=-1)] if layer.last else [each, each]
    factors = np.stack(used[:count], axis=1, dtype=np.float32).reshape(-1, steps)
    used_words = graph.add("MatMul", factors, graph.add("Gather", words, 0, axis=0))
    x = graph.add("Concat", x, padding, axis=2)
    return x, graph.add("Reshape", used_words, [steps, count, -1, 1])


LAYERS: Final[dict[type, Callable[..., str]]] = {
    kinds.Embedding: _embedding,
    kinds.Convolution: _convolution,
    kinds.Pooling: _pooling,
    kinds.Recurrent: _recurrent,
    kinds.Residual: _activated,
    kinds.Normalisation: _normalisation,
}


def _scores(graph: Graph, operands: Operands, layers: Layers) -> str:
    """The scores [N, C] of one member; a chosen feature is a row of weights, not one-hot."""
    first, scores = layers[0], cast(Any, layers[0].bias)
    if operands.dense is not None:
        scores = graph.add("Gemm", operands.dense, first.weights[operands.features], scores)
    if operands.chosen is not None:
        rows = np.einsum("lkw,lk->lw", first.weights[operands.choices], operands.values)
        chosen = graph.add("Gather", rows, operands.chosen, axis=0)
        scores = graph.add("Add", graph.add("ReduceSum", chosen, [1], keepdims=0), scores)
    for below, layer in pairwise(layers):
        operator, attributes = ACTIVATIONS[below.activation]
        active = graph.add(operator, scores, **attributes)
        weights = layer.weights.T if layer.output_major else layer.weights
        scores = graph.add("Gemm", active, weights, layer.bias)
    return str(scores)


def _mean_scores(graph: Graph, model: Model, members: list[str]) -> str:
    """The scores of the mean prediction, like `hogbatch.model.ensemble.mean_scores`."""
    each = [graph.add("Unsqueeze", scores, [0]) for scores in members]
    scores, loss = graph.cast(graph.add("Concat", *each, axis=0), np.float64), model.loss

    def mean(values: str) -> str:
        total = graph.add("ReduceSum", values, [0], keepdims=0)
        return graph.add("Div", total, float(len(members)))

    if loss.encoding == "counts":
        mean_of = graph.add("Log", mean(graph.add("Exp", graph.add("Min", scores, LARGEST_LOG))))
    elif not loss.has_probabilities:
        mean_of = mean(scores)
    elif loss.normalised:
        mean_of = graph.add("Log", mean(graph.add("Softmax", scores, axis=2)))
    else:
        likely, unlikely = (
            graph.add("Log", mean(graph.add("Sigmoid", own)))
            for own in (scores, graph.add("Neg", scores))
        )
        mean_of = graph.add("Sub", likely, unlikely)
    return graph.cast(mean_of, np.float32)


def _add_numbers(graph: Graph, model: Model, scores: str) -> None:
    encoding = model.encoding
    value = graph.cast(scores, np.float64)
    if encoding.kind == "counts":
        value = graph.add("Exp", graph.add("Min", value, LARGEST_LOG))
    value = graph.add("Add", graph.add("Mul", value, encoding.scale), encoding.offset)
    if encoding.kind == "logs":  # as in Encoding.predictions_of
        bounded = graph.add("Relu", graph.add("Min", value, np.log1p(encoding.largest)))
        value = graph.add("Sub", graph.add("Exp", bounded), 1.0)
    if encoding.targets == 1:
        graph.add_output("value", graph.add("Reshape", value, [-1]), np.float64, ())
    else:
        graph.add_output("value", value, np.float64, (encoding.targets,))


def _add_labels(graph: Graph, model: Model, scores: str) -> None:
    loss, kind, width = model.loss, model.encoding.kind, model.network.outputs
    if kind != "multilabel":
        if kind == "classes":
            number = graph.add("ArgMax", scores, axis=1, keepdims=0)
        else:
            above = graph.add("Greater", graph.add("Reshape", scores, [-1]), model.score_threshold)
            number = graph.cast(above, np.int64)
        classes = np.array(model.encoding.classes)
        graph.add_output("label", graph.add("Gather", classes, number, axis=0), classes.dtype, ())
    elif loss.has_predictions:
        likely = graph.cast(graph.add("Greater", scores, np.float32(0)), np.uint8)
        graph.add_output("label", likely, np.uint8, (width,))
    if not loss.has_probabilities:
        graph.add_output("scores", scores, np.float32, (width,))
        return
    if kind == "binary":
        scores, width = graph.add("Mul", scores, np.array([-1, 1], np.float32)), 2
    operator, axis = ("Softmax", {"axis": 1}) if loss.normalised else ("Sigmoid", {})
    graph.add_output("probabilities", graph.add(operator, scores, **axis), np.float32, (width,))
