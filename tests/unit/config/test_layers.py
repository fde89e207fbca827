"""The description of a layer in messages and files."""

import json
import re
from dataclasses import asdict, replace

import msgspec
import pytest

from hogbatch.config.layers import DenseLayer, layer_to_file
from hogbatch.errors import DataError
from hogbatch.model.file import load_model, save_model
from hogbatch.model.network import Network
from hogbatch.version import version
from hogbatch.wire.codec import PREFIX, BadFrame, decode_to_worker, encode
from tests.support.trained_models import model_for
from tests.support.wire_messages import WELCOME

LAYER = DenseLayer(3, 4, "tanh", output_major=True)
NETWORK = Network.build(5, (3,), 4, "tanh", "softmax", output_major=True)
INVALID = [
    ({"width": 0}, "at least 1 as sizes of a layer; got DenseLayer.*width=0"),
    ({"width": 4.0}, r"layers\[1\].width: expected a whole number; got 4.0"),
    ({"fan_in": True}, r"layers\[1\].fan_in: expected a whole number; got True"),
    ({"activation": "swish"}, r"layers\[1\].activation: expected 'linear' or .*'swish'"),
    ({"activation": None}, "activation: expected 'linear' or"),
]


def test_a_layer_survives_a_file_and_a_message():
    stored = layer_to_file(LAYER)
    assert stored == {"fan_in": 3, "width": 4, "activation": "tanh", "by_neuron": True}
    assert Network.from_description(json.loads(json.dumps(NETWORK.description()))) == NETWORK
    welcome = msgspec.structs.replace(WELCOME, layers=(LAYER,))
    assert decode_to_worker(encode(welcome)).layers == (LAYER,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *INVALID,
        ({"by_neuron": 1}, "output_major: expected true or false; got 1"),
        ({"kernel": 3}, r"layers\[1\]: expected the fields fan_in, .*; got .*'kernel'"),
    ],
)
def test_an_invalid_description_is_refused(change, message):
    described = NETWORK.description()
    first, last = described["layers"]
    with pytest.raises(ValueError, match=message):
        Network.from_description(described | {"layers": [first, last | change]})
    for incomplete in ({"fan_in": 3}, None, "dense", [3, 4, "relu", False]):
        with pytest.raises(ValueError, match=r"layers\[1\]: expected"):
            Network.from_description(described | {"layers": [first, incomplete]})


@pytest.mark.parametrize("change", [change for change, _ in INVALID], ids=str)
def test_a_message_with_an_invalid_layer_is_refused(change):
    fields = list(msgspec.structs.astuple(WELCOME))
    fields[WELCOME.__struct_fields__.index("layers")] = [asdict(LAYER) | change]
    with pytest.raises(BadFrame, match=r"\$\[1\]\[0\]"):  # the place in the message
        decode_to_worker(PREFIX + msgspec.msgpack.encode(["welcome", *fields]))


def test_a_model_file_with_another_kind_of_layer_is_refused_with_both_versions(
    tmp_path, monkeypatch
):
    path = tmp_path / "model.safetensors"
    model = replace(model_for(), about={"hogbatch": "9.9.9"})
    described = model.network.description()
    described["layers"][0]["kind"] = "lstm"
    monkeypatch.setattr(Network, "description", lambda network: described)
    save_model(model, path)
    expected = (
        f"{path}: the model was saved by hogbatch 9.9.9 and this is hogbatch {version()},"
        " which cannot read its network: network.layers[0]: expected the fields fan_in, "
    )
    with pytest.raises(DataError, match=re.escape(expected)):
        load_model(path)
