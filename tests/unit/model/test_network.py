import json
import math
import tracemalloc
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from hogbatch.errors import UsageError
from hogbatch.kernels.contract import ACTIVATIONS
from hogbatch.model import network as models
from hogbatch.model.network import Network
from tests.support import plain_sgd
from tests.support.stored import to_stored

widths = st.integers(1, 40)
build = partial(
    st.builds,
    Network.build,
    features=widths,
    outputs=st.integers(1, 20),
    activation=st.sampled_from(list(plain_sgd.ACTIVATIONS)),
    loss=st.just("softmax"),
)
networks = build(hidden=st.lists(widths, max_size=3).map(tuple)) | build(
    hidden=st.lists(widths, min_size=1, max_size=3).map(tuple), output_major=st.just(True)
)


def initialised(network, seed=0):
    params = np.full(network.parameters, np.nan, np.float32)
    network.initialise(params, seed)
    return params


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": 0}, r"at least 1 unit; got widths \(0, 8, 2\)"),
        ({"hidden": (0,)}, "at least 1 unit"),
        ({"activation": "swish"}, "expected one of linear, relu, .*; got 'swish'"),
        ({"loss": "auto"}, "expected one of logistic, .*; got 'auto'"),
        ({"hidden": (), "output_major": True}, "needs a hidden layer below it; got none"),
    ],
)
def test_invalid_arguments_are_refused(change, message):
    valid = {"features": 4, "hidden": (8,), "outputs": 2, "activation": "relu", "loss": "softmax"}
    with pytest.raises(UsageError, match=message):
        Network.build(**valid | change)


def test_tensors_have_stable_names_and_padded_shapes():
    for output_major, last in ((False, ((20, 3), (32, 4))), (True, ((3, 20), (4, 32)))):
        network = Network.build(300, (20,), 3, "relu", "softmax", output_major)
        assert [(each.name, each.shape, each.stored) for each in network.tensors()] == [
            ("layers.0.weight", (300, 20), (304, 32)),
            ("layers.0.bias", (20,), (32,)),
            ("layers.1.weight", *last),
            ("layers.1.bias", (3,), (4,)),
        ]
        assert [layer.output_major for layer in network.layers] == [False, output_major]


def test_parameters_and_padding_have_names():
    network = Network.build(3, (5,), 1, "relu", "logistic")  # weights stored as [4, 8] and [8, 1]
    assert [network.place(index) for index in (0, 4, 5, 8, 26, 32)] == [
        "layers.0.weight[0, 0]",
        "layers.0.weight[0, 4]",
        "padding of layers.0.weight",
        "layers.0.weight[1, 0]",
        "padding of layers.0.weight",
        "layers.0.bias[0]",
    ]
    assert network.place(48 + 4) == "layers.1.weight[4, 0]"
    assert network.place(48 + 8) == "padding of layers.1.weight"  # up to the next cache line
    assert network.place(64) == "layers.1.bias[0]"
    assert network.place(79) == "padding of layers.1.bias"
    for index in (-1, 80):
        with pytest.raises(IndexError, match=f"expected an index below 80; got {index}"):
            network.place(index)
    network = Network.build(5, (4,), 3, "relu", "softmax", output_major=True)
    weight = network.tensors()[2]
    assert network.place(weight.offset + 2 * weight.stored[1] + 1) == "layers.1.weight[2, 1]"


@given(networks)
def test_tensors_start_on_cache_lines_and_do_not_overlap(network):
    """The network is also read back from its description."""
    assert Network.from_description(json.loads(json.dumps(network.description()))) == network
    tensors = network.tensors()
    ends = [tensor.offset + math.prod(tensor.stored) for tensor in tensors]
    assert all(tensor.offset % 16 == 0 for tensor in tensors)
    assert all(end <= after.offset for end, after in zip(ends, tensors[1:], strict=False))
    assert ends[-1] <= network.parameters


@given(networks)
def test_layer_views_contain_the_offsets_and_widths_of_the_tensors(network):
    tensors, views = network.tensors(), network.layer_views()
    for weight, bias, view, layer in zip(
        tensors[::2], tensors[1::2], views, network.layers, strict=True
    ):
        assert (view.weights, view.bias) == (weight.offset, bias.offset)
        stored = (view.fan_out, view.fan_in) if layer.output_major else (view.fan_in, view.fan_out)
        assert (stored, view.output_major) == (weight.stored, int(layer.output_major))
        assert (view.width, view.activation) == (layer.width, ACTIVATIONS[layer.activation])
    assert all(below.fan_out == above.fan_in for below, above in pairwise(views))


@given(networks, st.integers(0, 2**63 - 1))
def test_real_tensors_survive_storing_and_padding_is_zero(network, seed):
    random = np.random.default_rng(seed)
    tensors = {
        tensor.name: random.standard_normal(tensor.shape, np.float32) + 9
        for tensor in network.tensors()
    }
    params = np.full(network.parameters, np.nan, np.float32)
    to_stored(network, tensors, params)
    back = network.from_stored(params)
    assert list(back) == list(tensors)
    for name, tensor in tensors.items():
        assert_array_equal(back[name], tensor)
    assert np.count_nonzero(params) == sum(tensor.size for tensor in tensors.values())
    back[name][:] = 1  # they are views
    assert_array_equal(network.tensors()[-1].view(params), 1)


def test_initial_weights_need_no_second_copy_of_the_model():
    network = Network.build(50_000, (64,), 2, "relu", "softmax")
    params = np.empty(network.parameters, np.float32)
    tracemalloc.start()
    try:
        network.initialise(params, 0)
        assert tracemalloc.get_traced_memory()[1] < params.nbytes / 4
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("output_major", [False, True])
def test_the_seed_determines_the_initial_weights(output_major, monkeypatch):
    network = Network.build(301, (33, 7), 5, "relu", "softmax", output_major)
    at_once = initialised(network, 1)
    assert (at_once != initialised(network, 2)).any()
    monkeypatch.setattr(models, "DRAWN_VALUES", 100)  # drawn in parts
    assert_array_equal(initialised(network, 1), at_once)
    tensors = network.from_stored(at_once)
    weights = sum(np.count_nonzero(tensors[name]) for name in tensors if "weight" in name)
    assert np.count_nonzero(at_once) == weights  # padding and biases are zero
    assert not initialised(Network.build(300, (), 5, "relu", "softmax")).any()  # a linear model


@pytest.mark.parametrize("activation", plain_sgd.ACTIVATIONS)
def test_rows_remain_distinguishable_through_eight_layers(activation):
    function, _ = plain_sgd.ACTIVATIONS[activation]
    network = Network.build(256, (256,) * 8, 2, activation, "softmax")
    rows = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    tensors = network.from_stored(initialised(network))
    scales = []
    for index in range(8):
        rows = function(rows @ tensors[f"layers.{index}.weight"])
        scales.append(rows.std(axis=0).mean())
    assert 0.1 < scales[-1] / scales[0] < 1.1  # above 1 with the He deviation for SELU


@pytest.mark.parametrize(
    ("square", "first"), [(None, 0.0447), (1.0, 0.1), (4.0, 0.05), (1e4, 0.0447)]
)
def test_initial_weights_of_output_major_networks_depend_on_the_inputs(square, first):
    spreads = []
    for output_major in (True, False):
        network = Network.build(1000, (64,), 500, "relu", "softmax", output_major)
        params = np.full(network.parameters, np.nan, np.float32)
        network.initialise(params, 0, square)
        spreads.append([tensor.view(params).std() for tensor in network.tensors()[::2]])
    assert spreads[0] == pytest.approx([first, 0.2 / 8], rel=0.02)
    assert spreads[1] == pytest.approx([0.0447, 0.1 * (2 / 564) ** 0.5], rel=0.02)


def test_the_description_is_that_of_earlier_versions():
    """Model files of version 0.1.0 contain this, so neither names nor their order may change."""
    network = Network.build(3, (4,), 2, "relu", "softmax", output_major=True)
    assert json.dumps(network.description()) == (
        '{"features": 3, "layers": ['
        '{"fan_in": 3, "width": 4, "activation": "relu", "by_neuron": false}, '
        '{"fan_in": 4, "width": 2, "activation": "linear", "by_neuron": true}'
        '], "loss": "softmax"}'
    )


def test_a_description_with_an_unknown_loss_is_refused():
    described = Network.build(3, (), 2, "relu", "softmax").description() | {"loss": "focal"}
    with pytest.raises(UsageError, match=r"expected one of logistic, .*; got 'focal'"):
        Network.from_description(described)
