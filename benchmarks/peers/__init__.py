"""The frameworks hogbatch is compared with: one module per peer, each of them a `contract.Peer`.

A peer's module imports its framework only when it trains, and of this project only hogbatch's data
types and the contract, so that it runs in the framework's own environment.
"""

from importlib import import_module
from pathlib import Path
from typing import Final, cast

from benchmarks.peers.contract import Peer

ON_CPU: Final = {  # in time_to_loss
    "pytorch": "pytorch",
    "pytorch-hogwild": "pytorch_hogwild",
    "tensorflow": "tensorflow_keras",
    "sklearn-sgd": "sklearn_linear",
    "vowpal-wabbit": "vowpal_wabbit",
}
ON_GPU: Final = {"pytorch-gpu": "pytorch_gpu"}  # in heterogeneous
TUNED: Final = Path(__file__).parent / "tuned.json"  # settings of ON_CPU and ON_GPU


def peer(name: str) -> Peer:
    """The peer called `name`; its framework is imported only when it trains."""
    module = (ON_CPU | ON_GPU)[name]
    return cast(Peer, import_module(f"benchmarks.peers.{module}"))
