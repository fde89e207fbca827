"""Writing a graph as an ONNX file."""

from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

from hogbatch.errors import UsageError
from hogbatch.export.graph import Graph, Node, Value
from hogbatch.version import version

VERSIONS: Final = {"": 13, "ai.onnx.ml": 2}  # of the operators, and the oldest of the format,
IR_VERSION: Final = 7  # for old programs
MAX_BYTES: Final = 2**31 - 2**20  # of a protocol buffer, without the nodes


def onnx_bytes(graph: Graph, about: dict[str, str]) -> bytes:
    """The contents of an ONNX file of `graph`, with the texts `about` as metadata.

    UsageError if it would be larger than 2 GiB.
    """
    size = sum(array.nbytes for array in graph.constants.values())
    if size > MAX_BYTES:
        raise UsageError(
            f"the weights of the model have {size / 1e9:.1f} GB; an ONNX file has at most 2.1 GB"
        )
    model: ModelProto = helper.make_model(
        helper.make_graph(
            [node_of(each) for each in graph.nodes],
            "hogbatch",
            [_value(each) for each in graph.inputs],
            [_value(each) for each in graph.outputs],
            [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
        ),
        producer_name="hogbatch",
        producer_version=version(),
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid(*each) for each in VERSIONS.items()],
    )
    helper.set_model_props(model, about)
    checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def node_of(node: Node) -> NodeProto:
    attributes, domain = dict(node.attributes), ""
    if node.operator == "Cast":
        attributes["to"] = element_type(attributes["to"])
    elif node.operator == "LabelEncoder":
        domain, table = "ai.onnx.ml", attributes.pop("table")
        attributes = {
            "keys_strings": [*table],
            "values_int64s": [*table.values()],
            "default_int64": attributes["default"],
        }
    return helper.make_node(node.operator, node.inputs, [node.output], domain=domain, **attributes)


def _value(value: Value) -> ValueInfoProto:
    shape: list[str | int | None] = ["rows", *value.shape]
    return helper.make_tensor_value_info(
        value.name, element_type(value.dtype), shape, value.meaning
    )


def element_type(dtype: np.dtype[Any]) -> int:
    """The number of an element type."""
    return int(TensorProto.STRING if dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(dtype))
