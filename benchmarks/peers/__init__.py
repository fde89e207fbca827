"""What hogbatch is compared with: one module a peer, all with the interface of `contract.Peer`."""

from importlib import import_module
from typing import Final

from peers.contract import Peer

MODULES: Final = {
    "pytorch": "peers.pytorch",
    "pytorch-hogwild": "peers.pytorch_hogwild",
    "tensorflow": "peers.tensorflow_keras",
    "sklearn-mlp": "peers.sklearn_mlp",
    "sklearn-sgd": "peers.sklearn_linear",
    "vowpal-wabbit": "peers.vowpal_wabbit",
}
ON_GPU: Final = {"pytorch-gpu": "peers.pytorch_gpu"}  # of heterogeneous.py
WIDE: Final = {  # of slide.py
    "pytorch-full": "peers.pytorch_wide",
    "pytorch-sampled": "peers.pytorch_sampled",
}


def peer(name: str) -> Peer:
    """The peer called `name`; its framework is imported only when it trains."""
    made: Peer = import_module((MODULES | ON_GPU | WIDE)[name]).PEER
    return made
