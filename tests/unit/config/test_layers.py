"""Every kind of layer: its description survives messages and files, and networks can use it."""

import json
import re
from dataclasses import FrozenInstanceError, asdict, replace

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.config.layers import (
    ACTIVATIONS,
    LAYER_KINDS,
    DenseLayer,
    layer_from,
    layer_from_file,
    layer_to_file,
)
from hogbatch.data.batch import dense_inputs, single_labels
from hogbatch.errors import DataError, UsageError
from hogbatch.kernels import reference
from hogbatch.kernels.contract import LOSSES, SGD, TOTALS, Hyper
from hogbatch.kernels.executor import Executor
from hogbatch.model.file import load_model, save_model
from hogbatch.model.network import Network
from hogbatch.version import version
from hogbatch.wire.codec import PREFIX, BadFrame, decode_to_worker, encode
from tests.support.trained_models import model_for
from tests.support.wire_messages import WELCOME

# One hidden layer of each kind: a new kind needs an example here.
EXAMPLES = {"dense": DenseLayer(6, 5, "tanh")}
DENSE = {"fan_in": 3, "width": 4, "activation": "relu", "output_major": False, "kind": "dense"}

KINDS = " or ".join(LAYER_KINDS)

kinds = pytest.mark.parametrize("kind", LAYER_KINDS)


@kinds
def test_every_kind_has_the_common_attributes(kind):
    layer = EXAMPLES[kind]
    assert layer.kind == kind and type(layer) is LAYER_KINDS[kind]
    assert min(layer.fan_in, layer.width) > 0 and layer.output_major in (False, True)
    assert layer.activation in ACTIVATIONS
    with pytest.raises(FrozenInstanceError):
        layer.kind = "dense"
    assert layer.deviations().keys() <= layer.tensors().keys()


@kinds
def test_every_kind_survives_its_description_and_a_message(kind):
    layer = EXAMPLES[kind]
    assert layer_from_file(json.loads(json.dumps(layer_to_file(layer)))) == layer
    assert layer_from(asdict(layer)) == layer
    welcome = msgspec.structs.replace(WELCOME, layers=(layer,))
    assert decode_to_worker(encode(welcome)).layers == (layer,)


@kinds
def test_every_kind_trains_in_a_network(kind):
    layer, random = EXAMPLES[kind], np.random.default_rng(0)
    network = Network(layer.fan_in, (layer, DenseLayer(layer.width, 2, "linear")), "softmax")
    params, none = np.empty(network.parameters, np.float32), np.empty(0, np.float32)
    network.initialise(params, 0)
    start = network.from_stored(params.copy())
    executor = Executor(reference, np, network.layer_views(), params, none, none)
    inputs = dense_inputs(random.standard_normal((8, layer.fan_in), np.float32))
    labels = single_labels(np.arange(8, dtype=np.float32) % 2)
    totals, hyper = np.zeros(TOTALS), Hyper(0.1, 0.0, 0.0, 0.0, 0.0)
    executor.train_batch(inputs, labels, np.arange(8), LOSSES["softmax"], SGD, hyper, totals)
    for name, trained in network.from_stored(params).items():
        assert (trained != start[name]).any(), f"{name} did not train"
    padding = params.copy()
    for tensor in network.tensors():
        tensor.view(padding)[:] = 0
    assert_array_equal(padding, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "lstm"}, f"expected a layer of kind {KINDS}; got 'lstm'"),
        ({"kind": ["dense"]}, rf"expected a layer of kind {KINDS}; got \['dense'\]"),
        ({"kernel": 3}, "with the fields fan_in, .*, kind; got fan_in, .*, kernel"),
        ({"width": 0}, "width of a dense layer must be a whole number of at least 1; got 0"),
        ({"width": 4.0}, "width of a dense layer must be a whole number"),
        ({"fan_in": True}, "fan_in of a dense layer must be a whole number"),
        ({"activation": "swish"}, "activation of a dense layer must be one of linear, .*'swish'"),
        ({"activation": None}, "activation of a dense layer must be one of"),
        ({"output_major": 1}, "output_major of a dense layer must be true or false; got 1"),
    ],
)
def test_an_invalid_description_is_refused(change, message):
    with pytest.raises(UsageError, match=message):
        layer_from(DENSE | change)
    with pytest.raises(UsageError, match="got fan_in, kind"):
        layer_from({"fan_in": 3, "kind": "dense"})
    for description in (None, "dense", [3, 4, "relu", False]):
        with pytest.raises(UsageError, match="expected the fields of a layer"):
            layer_from(description)


def test_a_message_with_an_invalid_layer_is_refused():
    fields = list(msgspec.structs.astuple(WELCOME))
    fields[WELCOME.__struct_fields__.index("layers")] = [DENSE | {"width": -1}]
    with pytest.raises(BadFrame, match=r"\$\[4\]\[0\]"):  # the place in the message
        decode_to_worker(PREFIX + msgspec.msgpack.encode(["welcome", *fields]))


def test_a_model_file_with_an_unknown_kind_is_refused_with_both_versions(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    model = replace(model_for(), about={"hogbatch": "9.9.9"})
    described = model.network.description()
    described["layers"][0]["kind"] = "lstm"
    monkeypatch.setattr(Network, "description", lambda network: described)
    save_model(model, path)
    expected = (
        f"{path}: the model was saved by hogbatch 9.9.9 and this is hogbatch {version()},"
        f" which cannot read its network: expected a layer of kind {KINDS}; got 'lstm'"
    )
    with pytest.raises(DataError, match=re.escape(expected)):
        load_model(path)


def test_a_layer_cannot_have_the_kind_of_another():
    with pytest.raises(UsageError, match="'lstm' is not the kind of a DenseLayer"):
        DenseLayer(3, 4, "relu", kind="lstm")  # type: ignore[arg-type]
