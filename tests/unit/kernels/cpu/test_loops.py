"""The choice of the compiled loop for a network and its inputs."""

import pytest

from hogbatch.kernels.cpu import exact, linear, network, wide
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.lsh import network as lsh
from hogbatch.model.network import Network

CHOICES = [  # hidden layers, outputs, output-major, sparse, hashed: loop
    ((), 1, False, False, False, "dense"),
    ((), 1, False, True, False, "linear"),
    ((), 2, False, True, False, "dense"),
    ((8,), 1, False, True, False, "dense"),
    ((8,), 1, False, False, False, "dense"),
    ((8, 4), 50, False, True, False, "dense"),
    ((8, 4), 50, True, False, False, "wide"),
    ((8,), 50, True, True, False, "wide"),
    ((8,), 1, True, True, False, "wide"),
    ((8,), 50, True, True, True, "hashed"),
    ((8, 4), 50, True, False, True, "hashed"),
]
FUNCTIONS = {
    "dense": (network.train, network.evaluate),
    "linear": (linear.train, network.evaluate),
    "wide": (wide.train, exact.evaluate),
    "hashed": (lsh.train, exact.evaluate),
}


@pytest.mark.parametrize(
    ("hidden", "outputs", "output_major", "sparse", "hashed", "expected"), CHOICES
)
def test_the_loop_follows_from_network_and_inputs(
    hidden, outputs, output_major, sparse, hashed, expected
):
    loss = "softmax" if outputs > 1 else "logistic"
    layers = Network.build(9, hidden, outputs, "relu", loss, output_major).layer_views()
    loop = loop_for(layers, sparse=sparse, hashed=hashed)
    assert loop.name == expected
    assert (loop.train, loop.evaluate) == FUNCTIONS[expected]
