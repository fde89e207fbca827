"""The notation of `--layers`, and the shapes that follow from it."""

import math

import numpy as np
import pytest

from hogbatch.config.backbone import Backbone, divided, is_divided, parse_shape, shape_of
from hogbatch.errors import UsageError

SHAPES = {  # layers over 12 x 10 x 3: outputs
    "conv:8x3x3": (12, 10, 8),
    "conv:8x3x3:s2": (6, 5, 8),
    "conv:8x4x2:valid": (9, 9, 8),
    "conv:8x3x3:s3:valid": (4, 3, 8),
    "conv:8x3x3:d2:valid": (8, 6, 8),
    "conv:8x3x3,relu,pool:2": (6, 5, 8),
    "pool:5": (2, 2, 3),
    "pool:2x5": (6, 2, 3),
    "avgpool:3": (4, 3, 3),
    "conv:4x1x1,max": (1, 1, 4),
    "mean": (1, 1, 3),
    "conv:3x3x3,relu,conv:3x1x1,add:2,tanh,add:1": (12, 10, 3),
    "norm,conv:3x3x3,norm,relu,mean,norm,norm,tanh": (1, 1, 3),
    "pool:12x1,lstm:4": (1, 10, 4),
    "pool:12x1,lstm:4,last": (1, 1, 4),
    "pool:12x1,gru:4": (1, 10, 4),
    "pool:12x1,gru:4,last": (1, 1, 4),
    "pool:12x1,lstm:4:both": (1, 10, 8),
    "pool:12x1,gru:4:both,last": (1, 1, 8),
}
REFUSED = {
    "conv:8": "conv:FILTERSxHEIGHTxWIDTH",
    "conv:8x0x3": "got 'conv:8x0x3'",
    "conv:8x3x3:s0": "got 'conv:8x3x3:s0'",
    "conv:8x3x3:p2": "got 'conv:8x3x3:p2'",
    "pool:2:s1": "got 'pool:2:s1'",
    "rnn:4": "got 'rnn:4'",
    "gru:4:s2": "got 'gru:4:s2'",
    "lstm:4:both:both": "got 'lstm:4:both:both'",
    "lstm:4": "'lstm:4' of 'lstm:4' needs a sequence, 1xSTEPSxVALUES; its inputs .* 12x10x3",
    "pool:12x1,last": "'last' of 'pool:12x1,last' does not follow an LSTM or GRU layer",
    "pool:2,relu": "does not follow conv, norm or add",
    "conv:8x3x3,relu,tanh": "does not follow conv, norm or add",
    "relu": "does not follow conv, norm or add",
    "conv:3x3x3,add:1,relu,relu": "does not follow conv, norm or add",
    "mean,add:2": "'add:2' .* first of 2 layers below it: .* got layers with inputs of 12x10x3$",
    "conv:3x3x3,conv:8x3x3,add:2": "adds outputs of .* 12x10x8 .* inputs of 12x10x3, 12x10x3$",
    "norm:2": "got 'norm:2'",
    "conv:1x3x3,norm": "'norm' of .* needs two or more channels.* inputs have the shape 12x10x1",
    "add:1": "got layers with inputs of none",
    "add:0": "got 'add:0'",
    "pool:13": "outputs of shape 0x0x3, from inputs of 12x10x3",
    "conv:8x13x3:valid": "from inputs of 12x10x3",
    "conv:1000000x3x3": "expected from 1 to 16,777,216 values",
}


@pytest.mark.parametrize(("text", "shape"), SHAPES.items())
def test_shapes_follow_from_the_layers(text, shape):
    backbone = Backbone.of(text, (12, 10, 3))
    assert backbone.layers[-1].outputs == shape
    assert (backbone.features, backbone.outputs) == (360, math.prod(shape))


def test_an_embedding_has_the_ids_of_texts_or_those_that_are_stated():
    of_texts = Backbone.of("embed:4,conv1d:5x3,relu,max", (1, 10, 1), ids=9)
    assert of_texts == Backbone.of("embed:9x4,conv1d:5x3,relu,max", (1, 10, 1))
    assert Backbone.parse(str(of_texts)) == of_texts
    assert [each.outputs for each in of_texts.layers] == [(1, 10, 4), (1, 10, 5), (1, 1, 5)]
    assert dict(of_texts.tensors())["backbone.0.vectors"] == (9, 4)
    assert shape_of("embed:9x4", "", (10,)) == (1, 10, 1)


@pytest.mark.parametrize(
    ("text", "shape", "said"),
    [
        ("embed:4", (1, 10, 1), "embed:WIDTH for texts, embed:IDSxWIDTH for ids; got 'embed:4'"),
        ("embed:9x4", (1, 10, 2), "must be the first layer, over rows of one number per step"),
        ("avgpool:1x2,embed:9x4", (1, 10, 1), "must be the first layer"),
        ("embed:99999999x1", (1, 10, 1), "at most 16,777,216 ids"),
        ("embed:9x4:s2", (1, 10, 1), "got 'embed:9x4:s2'"),
        ("embed:0x4", (1, 10, 1), "got 'embed:0x4'"),
    ],
)
def test_other_embeddings_are_refused(text, shape, said):
    with pytest.raises(UsageError, match=said):
        Backbone.of(text, shape)


@pytest.mark.parametrize("text", [*SHAPES, "conv1d:7x5:s2:d3,selu,mean", "pool:12x1,lstm:4,last"])
def test_what_is_written_is_read(text):
    backbone = Backbone.of(text, (12, 10, 3))
    assert Backbone.parse(str(backbone)) == backbone


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_other_layers_are_refused(text, said):
    with pytest.raises(UsageError, match=said):
        Backbone.of(text, (12, 10, 3))


def test_a_word_for_sequences_is_a_row_of_a_picture():
    sequences, pictures = (Backbone.of(each, (1, 10, 3)) for each in ("conv1d:7x5", "conv:7x1x5"))
    assert sequences == pictures


def test_layers_are_divided_into_backbone_and_dense():
    assert divided("conv:8x3x3, relu, dense:64, dense:32") == ("conv:8x3x3,relu", (64, 32))
    assert divided("pool:2") == ("pool:2", ())
    for text in ("dense:64", "", "pool:2,dense:0", "pool:2,dense:8,relu", "pool:2,dense:x"):
        assert is_divided(text) == (text == "")  # no layers are the default


def test_the_shape_of_rows_is_stated_or_found():
    assert shape_of("conv:1x1x1", "", (4, 5, 6)) == (4, 5, 6)
    assert shape_of("conv:1x1x1", "", (4, 5)) == (4, 5, 1)
    assert shape_of("conv1d:1x1", "", (4, 5)) == (1, 4, 5)  # steps of values
    assert shape_of("gru:1", "", (4, 5)) == (1, 4, 5)
    assert shape_of("conv:1x1x1", "2x10", (20,)) == parse_shape("2x10x1") == (2, 10, 1)
    with pytest.raises(UsageError, match="--input-shape"):
        shape_of("conv:1x1x1", "", (20,))
    for text in ("28", "2x3x4x5", "0x3", "ax3", ""):
        with pytest.raises(UsageError, match="HEIGHTxWIDTHxCHANNELS"):
            parse_shape(text)


def test_initial_weights_keep_the_scale_of_signals():
    """The mean square of outputs is about that of inputs, through five layers with ReLU."""
    from hogbatch.kernels.backbone_layers import backbone_of
    from hogbatch.kernels.reference import NUMPY_KERNELS
    from hogbatch.model.network import Network

    backbone = Backbone.of(",".join(5 * ["conv:32x3x3,relu"]), (8, 8, 32))
    network, random = Network.build(2048, (), 2, "relu", "softmax", False, backbone), np.random
    params = np.zeros(network.parameters, np.float32)
    network.initialise(params, 0)
    layers = backbone_of(network.placed_backbone(), NUMPY_KERNELS, np, np.float32, 20)
    layers.inputs(20)[:] = random.default_rng(0).normal(size=(20, 2048))
    assert 0.2 < np.square(layers.forward(params, 20)).mean() < 5
