"""Writing a graph as a Python program that needs NumPy alone."""

import base64
import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from hogbatch.export.graph import TEXT, Graph

# The result of each operator: {0}, {1}, ... are its operands, {all} is the list of them, and names
# are its attributes.
EXPRESSIONS: Final = {
    "Abs": "np.abs({0})",
    "Add": "{0} + {1}",
    "And": "{0} & {1}",
    "AveragePool": "_windows({0}, {kernel_shape}).mean(axis=(4, 5))",
    "ArgMax": "{0}.argmax(axis={axis})",
    "Cast": "{0}.astype('{to}')",
    "Clip": "np.clip({0}, {1}, {2})",
    "Conv": "_convolution({0}, {1}, {2}, {pads}, {strides}, {dilations})",
    "Concat": "np.concatenate([{all}], axis={axis})",
    "Div": "{0} / {1}",
    "Equal": "{0} == {1}",
    "Exp": "np.exp({0})",
    "Floor": "np.floor({0})",
    "GRU": "_recurrent(_gru, {0}, {1}, {2}, {3})",
    "Gather": "np.take({0}, {1}, axis={axis})",
    "Gemm": "{0} @ {1} + {2}",
    "Greater": "{0} > {1}",
    "Identity": "{0}",
    "IsNaN": "np.isnan({0})",
    "LSTM": "_recurrent(_lstm, {0}, {1}, {2}, {3})",
    "LabelEncoder": "_numbers({0}, {table}, {default})",
    "Log": "np.log({0})",
    "MatMul": "{0} @ {1}",
    "MaxPool": "_windows({0}, {kernel_shape}).max(axis=(4, 5))",
    "Min": "np.minimum({0}, {1})",
    "Mul": "{0} * {1}",
    "Neg": "-{0}",
    "ReduceMean": "{0}.mean(axis=tuple({axes}), keepdims=True)",
    "ReduceSum": "{0}.sum(axis=tuple({1}))",
    "Relu": "np.maximum({0}, 0)",
    "Reshape": "{0}.reshape({1})",
    "Selu": "{gamma} * np.where({0} > 0, {0}, {alpha} * np.expm1(np.minimum({0}, 0)))",
    "Sigmoid": "np.exp(-np.logaddexp(0, -{0}))",
    "Sin": "np.sin({0})",
    "Softmax": "_softmax({0}, {axis})",
    "Sqrt": "np.sqrt({0})",
    "Sub": "{0} - {1}",
    "Tanh": "np.tanh({0})",
    "Transpose": "{0}.transpose({perm})",
    "Unsqueeze": "np.expand_dims({0}, tuple({1}))",
    "Where": "np.where({0}, {1}, {2})",
}
PROGRAM: Final = '''\
"""Predictions of a model, with NumPy alone: predict(columns)["{first}"].

{about}

Columns:
{inputs}

Results:
{outputs}
"""

import base64
import io
import re

import numpy as np


def predict(columns):
    """The results by name. `columns` are a dictionary of lists or arrays, or a data frame."""
{body}


def _cells(column, width):
    cells = np.asarray(column)
    if cells.dtype.kind == "M":  # dates
        column = np.where(np.isnat(cells), np.nan, cells.astype("M8[ms]").astype(np.int64) / 1000)
    return np.asarray(column, np.float64).reshape(-1, width)


def _texts(column):
    return [["" if cell is None or cell != cell else str(cell).strip()] for cell in column]


def _numbers(cells, table, default):
    return np.array([[table.get(cell, default) for cell in row] for row in cells], np.int64)


def _parts(column, pattern, length):
    found = [re.findall(pattern, text.lower())[:length] for (text,) in _texts(column)]
    return [[""] * (length - len(parts)) + parts for parts in found]


def _windows(x, size):
    seen = np.lib.stride_tricks.sliding_window_view(x, size, axis=(2, 3))
    return seen[:, :, :: size[0], :: size[1]]


def _convolution(x, filters, bias, pads, strides, dilations):
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    size = [(n - 1) * step + 1 for n, step in zip(filters.shape[2:], dilations)]
    seen = np.lib.stride_tricks.sliding_window_view(x, size, axis=(2, 3))
    seen = seen[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    return np.einsum("ncyxij,fcij->nfyx", seen, filters, optimize=True) + bias[:, None, None]


def _recurrent(units, x, *weights):
    found = []
    for n, own in enumerate(zip(*weights)):  # the second direction begins with the last step
        order = slice(None, None, 1 - 2 * n)
        found.append(np.stack([*units(x[order], *own)])[order])
    return np.stack(found, axis=1)


def _lstm(x, weights, recurrent, biases):
    given, more = np.split(biases, 2)
    state, cell = np.zeros((x.shape[1], recurrent.shape[1])), 0
    for gates in x @ weights.T + given + more:
        i, o, f, g = np.split(gates + state @ recurrent.T, 4, axis=1)
        i, o, f = (np.exp(-np.logaddexp(0, -gate)) for gate in (i, o, f))
        cell = f * cell + i * np.tanh(g)
        state = (o * np.tanh(cell)).astype(x.dtype)
        yield state


def _gru(x, weights, recurrent, biases):
    given, more = np.split(biases, 2)
    state = np.zeros((x.shape[1], recurrent.shape[1]))
    for gates in x @ weights.T + given:
        z, r, n = np.split(gates, 3, axis=1)
        more_z, more_r, m = np.split(state @ recurrent.T + more, 3, axis=1)
        z, r = (np.exp(-np.logaddexp(0, -gate)) for gate in (z + more_z, r + more_r))
        n = np.tanh(n + r * m)
        state = (n + z * (state - n)).astype(x.dtype)
        yield state


def _softmax(scores, axis):
    fractions = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return fractions / fractions.sum(axis=axis, keepdims=True)


TABLES = {tables}
WEIGHTS = "{weights}"
ARRAYS = np.load(io.BytesIO(base64.b64decode(WEIGHTS)), allow_pickle=False)
c = [ARRAYS[name] for name in ARRAYS.files]
'''


def program(graph: Graph, about: dict[str, str]) -> str:
    """The source of a module whose function `predict` computes `graph`; `about` is for people."""
    places = {name: f"c[{n}]" for n, name in enumerate(graph.constants)}
    places |= {each.name: f"x{n}" for n, each in enumerate(graph.inputs)}
    places |= {each.output: f"v{n}" for n, each in enumerate(graph.nodes)}
    constants: dict[str, Any] = graph.constants
    arrays = io.BytesIO()
    np.savez(arrays, **constants)
    return PROGRAM.format(
        first=graph.outputs[0].name,
        about=_safe("\n".join(f"{name}: {text}" for name, text in about.items())),
        inputs=_safe("\n".join(f"    {each.name}: {each.meaning}" for each in graph.inputs)),
        outputs="\n".join(f"    {each.name} {['rows', *each.shape]}" for each in graph.outputs),
        body="\n".join(f"    {line}" for line in _lines(graph, places)),
        tables=repr([n.attributes["table"] for n in graph.nodes if "table" in n.attributes]),
        weights=base64.b64encode(arrays.getvalue()).decode("ascii"),
    )


def _safe(text: str) -> str:
    """Text for a docstring."""
    plain = text.replace("\\", "\\\\").replace('"', "'")
    return plain.encode("ascii", "backslashreplace").decode("ascii")


def _lines(graph: Graph, places: dict[str, str]) -> Iterator[str]:
    """The statements of `predict`."""
    for each in graph.inputs:
        column = f"columns[{each.name!a}]"
        read = "_texts({})" if each.dtype == TEXT else f"_cells({{}}, {each.shape[0]})"
        read = f"_parts({{}}, {each.parts!r}, {each.shape[0]})" if each.parts else read
        conversion = "" if each.dtype in (TEXT, np.float64) else f".astype('{each.dtype}')"
        yield f"{places[each.name]} = {read.format(column)}{conversion}"
    tables = 0
    for node in graph.nodes:
        operands = [places[name] for name in node.inputs]
        attributes = node.attributes | {"table": f"TABLES[{tables}]", "all": ", ".join(operands)}
        result = EXPRESSIONS[node.operator].format(*operands, **attributes)
        yield f"{places[node.output]} = {result}"
        tables += "table" in node.attributes
    results = (f"{each.name!r}: {places[each.name]}" for each in graph.outputs)
    yield f"return {{{', '.join(results)}}}"
