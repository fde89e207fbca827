"""Models as training leaves them, for tests of prediction and of model files."""

import numpy as np

from hogbatch.config.backbone import Backbone
from hogbatch.data.encode import Encoding
from hogbatch.data.scale import Scaler
from hogbatch.model.network import Network
from hogbatch.model.trained import Model

SCALER = Scaler(np.arange(5.0), np.arange(1.0, 6.0) / 3)
ENCODINGS = {
    "logistic": Encoding("binary", (-1.0, 1.0), 1),
    "hinge": Encoding("binary", (-1.0, 1.0), 1),
    "softmax": Encoding("classes", (2.0, 5.0, 7.5), 3),
    "multilabel": Encoding("multilabel", (), 6),
    "multilabel-softmax": Encoding("multilabel", (), 6),
    "squared": Encoding("real", (), 1, offset=40.0, scale=2.5),
    "squared-log": Encoding("logs", (), 1, offset=3.0, scale=1.5, largest=90.0),
    "poisson": Encoding("counts", (), 1, scale=2.5),
}


def model_for(
    loss="softmax",
    features=5,
    hidden=(3,),
    scaler=None,
    output_major=False,
    seed=1,
    backbone=None,
):
    encoding = ENCODINGS[loss]
    below = None if backbone is None else Backbone.parse(backbone)
    given = "tanh", loss, output_major, below
    network = Network.build(features, hidden, encoding.outputs, *given)
    random = np.random.default_rng(seed)
    tensors = {
        each.name: random.standard_normal(each.shape, np.float32) for each in network.tensors()
    }
    return Model(network, tensors, encoding, scaler, 1, {"version": "0.1", "data": "é"})


def expected_scores(model, rows):
    """The formula, on real tensors and in float64."""
    for index, layer in enumerate(model.network.layers):
        weight, bias = (model.tensors[f"layers.{index}.{part}"] for part in ("weight", "bias"))
        rows = rows @ (weight.T if layer.output_major else weight).astype(np.float64) + bias
        rows = np.tanh(rows) if layer.activation == "tanh" else rows
    return rows
