"""Train one model with all CPU cores and GPUs of a server at the same time.

    import hogbatch
    run = hogbatch.train("a9a", max_seconds=10)
    run.test_loss

Each name is imported when it is first used, because `train` and `Run` require ZeroMQ, while
`load_model` requires only NumPy and safetensors. `__version__` is that of this source tree.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hogbatch.model.file import Model as Model, load_model as load_model
    from hogbatch.run.results import Run as Run
    from hogbatch.run.training import train as train

    __version__: str

_MODULES = {
    "Model": "hogbatch.model.file",
    "Run": "hogbatch.run.results",
    "load_model": "hogbatch.model.file",
    "train": "hogbatch.run.training",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("hogbatch.version").version()
    if name not in _MODULES:
        raise AttributeError(f"module 'hogbatch' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
