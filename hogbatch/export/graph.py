"""A computation as a graph of operators of ONNX (https://onnx.ai/onnx/operators), without ONNX.

The operators are those of opset 13, and of version 2 of the domain ai.onnx.ml.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

TEXT: Final = np.dtype(object)  # of inputs that are text
OUTPUTS: Final = ("label", "probabilities", "scores", "value")


class Value(NamedTuple):
    """An input or output of a graph."""

    name: str
    dtype: np.dtype[Any]  # TEXT, or as in NumPy
    shape: tuple[int, ...]  # of one row
    meaning: str = ""  # one sentence for users
    parts: str = ""  # of a text that programs divide: the regular expression of a part


class Node(NamedTuple):
    """One call of an operator."""

    operator: str
    inputs: tuple[str, ...]  # names of inputs of the graph, constants and results of other nodes
    output: str
    attributes: dict[str, Any]


@dataclass
class Graph:
    """Nodes in the order of computation, whose first dimension is the rows, N."""

    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def add_input(self, name: str, dtype: Any, width: int, meaning: str, parts: str = "") -> str:
        """Add an input [N, width] and return its name; inputs are added before nodes."""
        name = self._unused(name)
        self.inputs.append(Value(name, np.dtype(dtype), (width,), meaning, parts))
        return name

    def add(self, operator: str, *operands: Any, **attributes: Any) -> str:
        """Add a node and return the name of its result.

        Operands that are not names are constants: arrays, numbers or lists of them.
        """
        inputs = tuple(
            each if isinstance(each, str) else self._constant(np.asarray(each)) for each in operands
        )
        output = self._unused(f"{operator}_{len(self.nodes)}")
        self.nodes.append(Node(operator, inputs, output, attributes))
        return output

    def add_output(self, name: str, result: str, dtype: Any, shape: tuple[int, ...]) -> None:
        """Give the `result` of a node a name of OUTPUTS, as [N, *shape]."""
        self.nodes.append(Node("Identity", (result,), name, {}))
        self.outputs.append(Value(name, np.dtype(dtype), shape))

    def cast(self, operand: str, dtype: Any) -> str:
        """Add a conversion to the type `dtype` of NumPy."""
        return self.add("Cast", operand, to=np.dtype(dtype))

    def _constant(self, array: NDArray[Any]) -> str:
        name = self._unused(f"constant_{len(self.constants)}")
        self.constants[name] = array
        return name

    def _unused(self, name: str) -> str:
        """`name` with as many "_" as needed to differ from inputs and outputs."""
        while name in {*OUTPUTS, *(each.name for each in self.inputs)}:
            name += "_"
        return name
