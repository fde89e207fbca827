"""Exported models predict what `hogbatch.model` predicts, value by value."""

import re
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from hogbatch.config.layers import ACTIVATIONS
from hogbatch.config.losses import LOSSES
from hogbatch.config.metrics import NUMBERS as KINDS_OF_NUMBERS
from hogbatch.data.table.encoders import MAX_VALUES
from hogbatch.errors import UsageError
from hogbatch.export import onnx_file
from hogbatch.export.numpy_program import EXPRESSIONS, program
from hogbatch.export.onnx_file import onnx_bytes
from hogbatch.export.outputs import graph_of
from hogbatch.model.label_vectors import LabelVectors
from tests.support.exported_models import (
    LATER,
    LISTS,
    NUMBERS,
    THREE,
    TWO,
    encoding_of,
    model_of,
    models,
)

MODELS = models()
CLOSE = 1e-5
TYPES = {"tensor(double)": np.float64, "tensor(float)": np.float32, "tensor(string)": object}


def cells(rows, name):
    """A column as the documentation describes the inputs."""
    column = rows[name.removesuffix("_")]
    if column.dtype.kind == "M":
        seconds = column.astype("datetime64[ms]").astype(np.int64) / 1000
        return seconds.where(column.notna()).to_numpy()
    return column.to_numpy() if column.dtype.kind in "fi" else column.fillna("").to_numpy(object)


def parts(rows, value):
    """The words or characters of each text, as the documentation describes them."""
    (steps,) = value.shape
    found = [re.findall(value.parts, text.lower())[:steps] for text in rows[value.name]]
    return np.array([[""] * (steps - len(each)) + each for each in found], object)


def by_onnx(model, rows):
    """The outputs of ONNX Runtime."""
    graph = graph_of(model)
    session = onnxruntime.InferenceSession(onnx_bytes(graph, {}))
    frame = isinstance(rows, pd.DataFrame)
    if graph.inputs[0].parts:
        rows, frame = parts(rows, graph.inputs[0]), False
    found = {
        each.name: (cells(rows, each.name)[:, None] if frame else rows).astype(TYPES[each.type])
        for each in session.get_inputs()
    }
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, found), strict=True))


def by_numpy(model, rows):
    """The results of the program."""
    names, graph = {"__name__": "exported"}, graph_of(model)
    exec(program(graph, {"data": '""" {} \\x ä'}), names)
    if not isinstance(rows, pd.DataFrame):
        return names["predict"]({"X": rows})
    return names["predict"]({each.name: cells(rows, each.name) for each in graph.inputs})


def expected(model, rows):
    """The outputs, as the model itself computes them."""
    predicted = model.predict(rows) if model.loss.has_predictions else None
    if model.encoding.kind in KINDS_OF_NUMBERS:
        return {"value": predicted}
    found = {} if predicted is None else {"label": predicted}
    if model.loss.has_probabilities:
        return found | {"probabilities": model.predict_proba(rows)}
    return found | {"scores": model.scores(rows)}


@pytest.mark.parametrize("compute", [by_onnx, by_numpy])
@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_predicts_the_same(name, compute):
    model, rows = MODELS[name]
    got, wanted = compute(model, rows), expected(model, rows)
    assert [*got] == [*wanted]
    for output, values in wanted.items():
        assert got[output].shape == values.shape
        if values.dtype.kind == "f" and output != "label":
            np.testing.assert_allclose(got[output], values, CLOSE, CLOSE * np.abs(values).max())
        else:
            assert got[output].tolist() == values.tolist()


def test_every_activation_and_loss_is_compared():
    models = [model for model, _ in MODELS.values()]
    assert {model.network.layers[0].activation for model in models} == {*ACTIVATIONS}
    names = {model.network.loss for model in models}
    assert {LOSSES[name].encoding for name in names} == {loss.encoding for loss in LOSSES.values()}


def test_no_operator_is_without_a_use():
    used = {node.operator for model, _ in MODELS.values() for node in graph_of(model).nodes}
    assert used == EXPRESSIONS.keys()


def test_a_table_without_numbers_has_no_dense_features():
    table = encoding_of(pd.DataFrame({"label": ["red", "blue", "blue"]}))
    model, rows = model_of("logistic", TWO, table, ()), LATER[["label"]]
    wanted = model.predict_proba(rows)
    for compute in (by_onnx, by_numpy):
        np.testing.assert_allclose(compute(model, rows)["probabilities"], wanted, CLOSE, CLOSE)


def test_the_square_of_a_scaled_number_does_not_overflow():
    rows = pd.DataFrame({"tiny": [1e-200, 2e-200, 3e-200, 4e-200]})
    model, later = model_of("squared", NUMBERS, encoding_of(rows)), pd.DataFrame({"tiny": [-1.0]})
    for compute in (by_onnx, by_numpy):
        np.testing.assert_allclose(compute(model, later)["value"], model.predict(later), CLOSE)


def test_inputs_have_names_of_their_own():
    """A column may be called like an output, and two columns may have one name."""
    rows = pd.DataFrame({"value": [0.5, 1, 3], "value_": [3, 1, 2], "Concat_0": [1, 5, 3]})
    rows.columns = ["value", "value", "Concat_0"]
    model = model_of("squared", NUMBERS, encoding_of(rows))
    assert [each.name for each in graph_of(model).inputs] == ["value_", "value__", "Concat_0"]
    onnx_bytes(graph_of(model), {})


def test_the_program_takes_cells_as_they_are():
    table = encoding_of(pd.DataFrame({"color": ["red", "blue", "blue"], "size": [1, 2, np.nan]}))
    model, names = model_of("logistic", TWO, table, ()), {}
    exec(program(graph_of(model), {}), names)
    rows = {"color": [" red ", None, np.nan], "size": [None, 1, "2"]}
    clean = pd.DataFrame({"color": ["red", None, None], "size": [np.nan, 1, 2]})
    found = names["predict"](rows)["probabilities"]
    np.testing.assert_allclose(found, model.predict_proba(clean), CLOSE)


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_the_program_takes_dates_of_a_data_frame(unit):
    """Found: predictions with the microseconds of dates in place of their seconds."""
    days = pd.Series(["2020-01-01", "2024-02-29 12:30", None], dtype=f"datetime64[{unit}]")
    rows = pd.DataFrame({"day": days, "size": [1.0, 2.0, 0.5]})
    model, names = model_of("squared", NUMBERS, encoding_of(rows)), {}
    exec(program(graph_of(model), {}), names)
    found = names["predict"](rows)["value"]
    np.testing.assert_allclose(found, model.predict(rows), CLOSE)


def test_what_onnx_cannot_compute_is_named():
    vectors = LabelVectors(np.zeros(8, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
    described = replace(model_of("multilabel", LISTS), label_vectors=vectors)
    with pytest.raises(UsageError, match="label vectors cannot be exported"):
        graph_of(described)
    rows = pd.DataFrame({"note": ["red car", "blue car"] * 5001, "size": [1.0, 2.0] * 5001})
    rows["town"] = [f"town {n}" for n in range(len(rows))]
    assert len(rows) > MAX_VALUES
    table = encoding_of(rows, text=("note",), categorical=("town",))
    with pytest.raises(UsageError, match="'town', 'note' cannot be exported"):
        graph_of(model_of("softmax", THREE, table))


def test_a_file_that_would_be_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(onnx_file, "MAX_BYTES", 300)
    with pytest.raises(UsageError, match="ONNX file has at most"):
        onnx_bytes(graph_of(model_of("softmax", THREE)), {})
