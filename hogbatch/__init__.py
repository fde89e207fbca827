"""hogbatch trains one model with every CPU core and GPU of a server at once.

    import hogbatch
    run = hogbatch.train("a9a", max_seconds=10)
    run.test_loss

`train` and `Run` need ZeroMQ; `load_model` needs NumPy and safetensors alone, so each is imported
when it is first asked for. `__version__` is the installed version.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hogbatch.model.file import Model as Model, load_model as load_model
    from hogbatch.run.training import Run as Run, train as train

    __version__: str

_HOMES = {
    "Model": "hogbatch.model.file",
    "Run": "hogbatch.run.training",
    "load_model": "hogbatch.model.file",
    "train": "hogbatch.run.training",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("hogbatch")
    if name not in _HOMES:
        raise AttributeError(f"module 'hogbatch' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
