import math
import tracemalloc
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from hogbatch.data.batch import dense_inputs
from hogbatch.errors import UsageError
from hogbatch.kernels import executor as loop, load
from hogbatch.kernels.contract import ACTIVATIONS
from hogbatch.model import network as models
from hogbatch.model.network import DenseLayer, Network

widths = st.integers(1, 40)
build = partial(
    st.builds,
    Network.build,
    features=widths,
    outputs=st.integers(1, 20),
    activation=st.sampled_from(["relu", "sigmoid", "tanh"]),
    loss=st.just("softmax"),
)
networks = build(hidden=st.lists(widths, max_size=3).map(tuple)) | build(
    hidden=st.lists(widths, min_size=1, max_size=3).map(tuple), output_major=st.just(True)
)


def initialised(network, seed=0):
    params = np.full(network.parameters, np.nan, np.float32)
    network.initialise(params, seed)
    return params


def test_layers_follow_each_other_and_the_last_is_linear():
    assert Network.build(300, (512, 64), 2, "relu", "softmax").layers == (
        DenseLayer(300, 512, "relu"),
        DenseLayer(512, 64, "relu"),
        DenseLayer(64, 2, "linear"),
    )


def test_no_hidden_layer_is_a_linear_model():
    network = Network.build(300, (), 1, "relu", "logistic")
    assert network.layers == (DenseLayer(300, 1, "linear"),)
    assert network.outputs == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": 0}, r"at least 1 unit; got widths \(0, 8, 2\)"),
        ({"hidden": (0,)}, "at least 1 unit"),
        ({"activation": "swish"}, "expected one of linear, relu, sigmoid, tanh; got 'swish'"),
        ({"loss": "auto"}, "expected one of logistic, .*; got 'auto'"),
        ({"hidden": (), "output_major": True}, "need a hidden layer below them; got no hidden"),
    ],
)
def test_what_cannot_be_built_is_refused(change, message):
    sound = {"features": 4, "hidden": (8,), "outputs": 2, "activation": "relu", "loss": "softmax"}
    with pytest.raises(UsageError, match=message):
        Network.build(**sound | change)


def test_tensors_have_stable_names_and_padded_shapes():
    tensors = Network.build(300, (20,), 3, "relu", "softmax").tensors()
    assert [(tensor.name, tensor.shape, tensor.stored) for tensor in tensors] == [
        ("layers.0.weight", (300, 20), (304, 32)),
        ("layers.0.bias", (20,), (32,)),
        ("layers.1.weight", (20, 3), (32, 4)),
        ("layers.1.bias", (3,), (4,)),
    ]


@given(networks)
def test_every_parameter_has_a_place(network):
    places = np.array([network.place(index) for index in range(network.parameters)])
    for tensor in network.tensors():
        cells = tensor.view(places)
        for cell in {(0,) * len(tensor.shape), tuple(size - 1 for size in tensor.shape)}:
            assert cells[cell] == f"{tensor.name}{list(cell)}"
    named = sum(not place.startswith("padding of ") for place in places)
    assert named == sum(math.prod(tensor.shape) for tensor in network.tensors())
    assert len(set(places)) >= named


def test_a_place_tells_cells_from_padding():
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


@pytest.mark.parametrize("index", [-1, 80])
def test_what_is_no_parameter_has_no_place(index):
    with pytest.raises(IndexError, match=f"expected an index below 80; got {index}"):
        Network.build(3, (5,), 1, "relu", "logistic").place(index)


def test_weights_by_neuron_have_a_row_for_each():
    network = Network.build(300, (20,), 3, "relu", "softmax", output_major=True)
    assert [layer.output_major for layer in network.layers] == [False, True]
    weight, bias = network.tensors()[2:]
    assert (weight.name, weight.shape, weight.stored) == ("layers.1.weight", (3, 20), (4, 32))
    assert (bias.shape, bias.stored) == ((3,), (4,))


@given(networks)
def test_tensors_lie_on_cache_lines_without_overlap(network):
    tensors = network.tensors()
    ends = [tensor.offset + math.prod(tensor.stored) for tensor in tensors]
    assert all(tensor.offset % 16 == 0 for tensor in tensors)
    assert all(end <= after.offset for end, after in zip(ends, tensors[1:], strict=False))
    assert ends[-1] <= network.parameters


@given(networks)
def test_the_plan_says_where_the_tensors_lie(network):
    tensors, plan = network.tensors(), network.plan()
    for weight, bias, step, layer in zip(
        tensors[::2], tensors[1::2], plan, network.layers, strict=True
    ):
        assert (step.weights, step.bias) == (weight.offset, bias.offset)
        stored = (step.fan_out, step.fan_in) if layer.output_major else (step.fan_in, step.fan_out)
        assert (stored, step.output_major) == (weight.stored, int(layer.output_major))
        assert (step.width, step.activation) == (layer.width, ACTIVATIONS[layer.activation])
    assert all(below.fan_out == above.fan_in for below, above in pairwise(plan))


@given(networks, st.integers(0, 2**63 - 1))
def test_real_tensors_survive_storing_and_padding_is_zero(network, seed):
    random = np.random.default_rng(seed)
    tensors = {
        tensor.name: random.standard_normal(tensor.shape, np.float32) + 9
        for tensor in network.tensors()
    }
    params = np.full(network.parameters, np.nan, np.float32)
    network.to_stored(tensors, params)
    back = network.from_stored(params)
    assert list(back) == list(tensors)
    for name, tensor in tensors.items():
        assert_array_equal(back[name], tensor)
    assert np.count_nonzero(params) == sum(tensor.size for tensor in tensors.values())


def test_real_tensors_are_views():
    network = Network.build(3, (), 2, "relu", "softmax")
    params = initialised(network)
    network.from_stored(params)["layers.0.bias"][:] = 1
    assert params.sum() == 2


def test_weights_drawn_in_parts_are_those_drawn_at_once(monkeypatch):
    network = Network.build(301, (33, 7), 5, "relu", "softmax")
    at_once = initialised(network)
    monkeypatch.setattr(models, "DRAWN", 100)
    assert_array_equal(initialised(network), at_once)


def test_the_first_weights_take_no_second_copy_of_the_model():
    network = Network.build(50_000, (64,), 2, "relu", "softmax")
    params = np.empty(network.parameters, np.float32)
    tracemalloc.start()
    try:
        network.initialise(params, 0)
        assert tracemalloc.get_traced_memory()[1] < params.nbytes / 4
    finally:
        tracemalloc.stop()


@given(networks, st.integers(0, 2**63 - 1))
def test_padding_and_biases_start_at_zero(network, seed):
    params = initialised(network, seed)
    tensors = network.from_stored(params)
    weights = sum(np.count_nonzero(tensors[name]) for name in tensors if "weight" in name)
    assert np.count_nonzero(params) == weights


def test_a_linear_model_starts_at_zero():
    assert not initialised(Network.build(300, (), 5, "relu", "softmax")).any()


@pytest.mark.parametrize("output_major", [False, True])
def test_the_seed_decides_the_start(output_major):
    network = Network.build(30, (20,), 3, "relu", "softmax", output_major)
    assert_array_equal(initialised(network, 1), initialised(network, 1))
    assert (initialised(network, 1) != initialised(network, 2)).any()


def hidden_scales(activation, widths):
    """Standard deviation over random rows of each hidden unit's output, by layer."""
    network = Network.build(256, widths, 2, activation, "softmax")
    rows = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    tensors = network.from_stored(initialised(network))
    functions = {
        "relu": lambda z: np.maximum(z, 0),
        "tanh": np.tanh,
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    }
    scales = []
    for index in range(len(widths)):
        rows = functions[activation](rows @ tensors[f"layers.{index}.weight"])
        scales.append(rows.std(axis=0).mean())
    return scales


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
def test_rows_stay_apart_through_eight_layers(activation):
    scales = hidden_scales(activation, (256,) * 8)
    assert scales[-1] > 0.1 * scales[0]


def test_scores_start_near_zero():
    network = Network.build(256, (256,), 2, "relu", "softmax")
    tensors = network.from_stored(initialised(network))
    assert 0 < tensors["layers.1.weight"].std() < 0.02


@pytest.mark.parametrize(
    ("square", "first"), [(None, 0.0447), (1.0, 0.1), (4.0, 0.05), (1e4, 0.0447)]
)
def test_outputs_by_neuron_start_as_wide_as_their_inputs_ask(square, first):
    network = Network.build(1000, (64,), 500, "relu", "softmax", output_major=True)
    params = np.full(network.parameters, np.nan, np.float32)
    network.initialise(params, 0, square)
    spread = [tensor.view(params).std() for tensor in network.tensors()[::2]]
    assert spread == pytest.approx([first, 0.2 / 8], rel=0.02)


def test_what_rows_are_like_does_not_matter_to_other_networks():
    network, starts = Network.build(1000, (64,), 500, "relu", "softmax"), []
    for square in (None, 1e-3):
        starts.append(np.empty(network.parameters, np.float32))
        network.initialise(starts[-1], 0, square)
    assert_array_equal(*starts)


def test_the_loop_runs_the_plan_as_the_layers_say():
    network = Network.build(5, (3, 20), 2, "tanh", "softmax")
    params = initialised(network)
    rows = np.random.default_rng(0).standard_normal((4, 5), np.float32)
    nothing = np.empty(0, np.float32)
    runner = loop.Executor(load("reference"), np, network.plan(), params, nothing, nothing)
    got = runner.scores(dense_inputs(rows), np.arange(4))[:, : network.outputs]
    tensors = network.from_stored(params)
    for index in range(3):
        rows = rows @ tensors[f"layers.{index}.weight"] + tensors[f"layers.{index}.bias"]
        rows = np.tanh(rows) if index < 2 else rows
    np.testing.assert_allclose(got, rows, rtol=1e-5, atol=1e-6)
