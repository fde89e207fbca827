"""Conversion of the estimators to ONNX by skl2onnx, alone or in pipelines."""

from typing import Any

from onnx import TensorProto, helper
from skl2onnx import update_registered_converter
from skl2onnx.common import shape_calculator
from skl2onnx.common.data_types import guess_proto_type

from hogbatch.errors import UsageError
from hogbatch.estimators.classifier import HogbatchClassifier
from hogbatch.estimators.regressor import HogbatchRegressor
from hogbatch.export.onnx_file import VERSIONS, element_type, node_of
from hogbatch.export.outputs import graph_of


def register_converters() -> None:
    """Tell skl2onnx how to convert HogbatchClassifier and HogbatchRegressor."""
    options = {"zipmap": [True, False, "columns"], "nocl": [True, False]}
    shapes = shape_calculator.calculate_linear_classifier_output_shapes
    own = HogbatchClassifier, "HogbatchClassifier"
    update_registered_converter(*own, shapes, _convert, options=options)
    shapes = shape_calculator.calculate_linear_regressor_output_shapes
    update_registered_converter(HogbatchRegressor, "HogbatchRegressor", shapes, _convert)


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a fitted estimator; UsageError unless its rows are a matrix of numbers."""
    graph = graph_of(operator.raw_operator.model_)
    if [each.name for each in graph.inputs] != ["X"]:
        raise UsageError("skl2onnx converts estimators of a matrix of numbers; got a data frame")
    results = [each.name for each in graph.outputs]
    if graph.outputs[0].shape == () and results == ["value"]:
        results = [graph.add("Unsqueeze", "value", [1])]  # one column, like those of scikit-learn

    def add(kind: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> None:
        name = scope.get_unique_operator_name(kind)
        container.add_node(kind, inputs, [output], domain, VERSIONS[domain], name, **attributes)

    found = ["X", *graph.constants, *(each.output for each in graph.nodes)]
    names = {name: scope.get_unique_variable_name(name) for name in found}
    add("Cast", [operator.inputs[0].full_name], names["X"], to=element_type(graph.inputs[0].dtype))
    for name, array in graph.constants.items():
        kind, cells = element_type(array.dtype), array.reshape(-1).tolist()
        container.add_initializer(names[name], kind, [*array.shape], cells)
    for node in map(node_of, graph.nodes):
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        inputs, output = [names[name] for name in node.input], names[node.output[0]]
        add(node.op_type, inputs, output, node.domain, **attributes)
    for result, declared in zip(results, operator.outputs, strict=True):
        kind = guess_proto_type(declared.type)
        cast = {} if kind == TensorProto.STRING else {"to": kind}
        add("Cast" if cast else "Identity", [names[result]], declared.full_name, **cast)
