"""Train one model with all CPU cores and GPUs of a server at the same time.

    import hogbatch
    run = hogbatch.train("a9a", max_seconds=10)
    run.test_loss

Each name is imported when it is first used, because `train` and `Run` require ZeroMQ, while
`load_model` requires only NumPy and safetensors. The estimators `HogbatchClassifier`,
`HogbatchRegressor` and `HogbatchMultilabel` require scikit-learn. `__version__` is that of this
source tree.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hogbatch.api import train as train
    from hogbatch.estimators.classifier import HogbatchClassifier as HogbatchClassifier
    from hogbatch.estimators.multilabel import HogbatchMultilabel as HogbatchMultilabel
    from hogbatch.estimators.regressor import HogbatchRegressor as HogbatchRegressor
    from hogbatch.model.file import load_model as load_model
    from hogbatch.model.importances import permutation_importances as permutation_importances
    from hogbatch.model.trained import Model as Model
    from hogbatch.run.results import Run as Run

    __version__: str

_MODULES = {
    "Model": "hogbatch.model.trained",
    "Run": "hogbatch.run.results",
    "load_model": "hogbatch.model.file",
    "permutation_importances": "hogbatch.model.importances",
    "train": "hogbatch.api",
}
_ESTIMATORS = {
    "HogbatchClassifier": "hogbatch.estimators.classifier",
    "HogbatchMultilabel": "hogbatch.estimators.multilabel",
    "HogbatchRegressor": "hogbatch.estimators.regressor",
}
__all__ = sorted(_MODULES)  # without the estimators, which need an extra


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("hogbatch.version").version()
    module = _MODULES.get(name) or _ESTIMATORS.get(name)
    if module is None:
        raise AttributeError(f"module 'hogbatch' has no attribute {name!r}")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if name not in _ESTIMATORS or (error.name or "").split(".")[0] != "sklearn":
            raise
        message = f"{name} needs scikit-learn: pip install 'hogbatch[sklearn]'"
        raise ImportError(message) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_ESTIMATORS})
