"""The common part of the three estimators."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from hogbatch.config.train import FLAGS
from hogbatch.data.encode import Encoding
from hogbatch.data.memory import raw_set
from hogbatch.data.raw import Columns
from hogbatch.data.row_labels import RowLabels
from hogbatch.errors import UsageError
from hogbatch.estimators.training import Trained, train_rows
from hogbatch.run.defaults import weight_decay

SMALL_ROWS: Final = 10_000  # up to here: a narrow network, and one thread
SMALL_HIDDEN: Final = (128,)
LARGE_HIDDEN: Final = (512, 512)
FLOATS: Final = (np.float64, np.float32)


class HogbatchEstimator(BaseEstimator):
    """Parameters, training and scores of an estimator.

    Parameters
    ----------
    hidden : "auto", tuple of int or int
        Widths of the hidden layers; () is a linear model. "auto": (128,) for up to 10,000 rows,
        else (512, 512).
    activation : "relu", "sigmoid" or "tanh"
    optimizer : "sgd", "momentum", "adagrad" or "adam"
    lr : float or None
        Learning rate; None: depends on optimizer, loss and data.
    l2 : float or None
        L2 penalty; None: decreases with the number of rows.
    epochs : int or None
        Maximum number of passes over the training rows; None: 10, more for small data.
    patience : int or None
        Epochs without a lower validation loss after which training stops.
    max_seconds : float or None
        Maximum training time.
    cpu_batch, gpu_batch : str or None
        Limits of the batch sizes, "MIN:MAX".
    scale : "auto", "none", "standard" or "max"
        Scaling of the features.
    workers : str
        "auto", or for example "cpu:8,gpu:0". With "auto", up to 10,000 rows are trained on by one
        thread, and the result depends only on data, parameters and `random_state`.
    policy : str
        Batch policy.
    validation_fraction : float
        Fraction of the rows on which the loss is measured during training; the model with the
        lowest loss is kept. 0: all rows are trained on.
    warm_start : bool
        Whether `fit` continues from the model of an earlier `fit`.
    random_state : int, RandomState or None
        Determines the initial weights, the row order and the validation rows.
    verbose : bool
        Whether progress is printed.
    """

    trained_: Trained
    loss_curve_: list[float]  # training loss at each evaluation, about once per epoch
    n_iter_: int  # epochs

    def __init__(
        self,
        hidden: Any = "auto",
        *,
        activation: str = "relu",
        optimizer: str = "adagrad",
        lr: float | None = None,
        l2: float | None = None,
        epochs: int | None = None,
        patience: int | None = None,
        max_seconds: float | None = None,
        cpu_batch: str | None = None,
        gpu_batch: str | None = None,
        scale: str = "auto",
        workers: str = "auto",
        policy: str = "adaptive",
        validation_fraction: float = 0.0,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def _keep(self, parameters: Mapping[str, Any]) -> None:
        """Set the parameters as attributes, unchanged, as scikit-learn requires of `__init__`."""
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trained_")

    @property
    def model_(self) -> Any:
        """The trained :class:`hogbatch.Model`."""
        check_is_fitted(self)
        return self.trained_.model

    def _train(
        self,
        X: Any,
        labels: RowLabels,
        sample_weight: Any,
        encoding: Encoding | None,
        *,
        loss: str,
        part: bool,
    ) -> Self:
        """Train on validated `X`; `part`: only for the epoch of a `partial_fit`.

        See `_continues`. None as `encoding`: it is chosen from the labels.
        """
        rows, names = X.shape[0], tuple(getattr(self, "feature_names_in_", ()))
        raw = raw_set(X, weights=sample_weight, labels=lambda _: labels)
        raw = replace(raw, columns=Columns(names))
        continues = self._continues(part)
        earlier = self.trained_ if continues else None
        settings = self._settings(rows, earlier) | {"loss": loss}
        if part:
            settings |= self._part(rows)
        trained = train_rows(raw, settings, encoding=encoding, earlier=earlier, all_rows=not part)
        losses_before = self.loss_curve_ if continues else []
        self.loss_curve_ = [*losses_before, *trained.losses]
        self.n_iter_ = round(trained.epochs) + (self.n_iter_ if continues else 0)
        self.trained_ = trained
        return self

    def _continues(self, part: bool) -> bool:
        """Whether a fit continues from the present model: a `partial_fit`, or a warm start."""
        return hasattr(self, "trained_") and (part or self.warm_start)

    def _settings(self, rows: int, earlier: Trained | None) -> dict[str, Any]:
        parameters = self.get_params(deep=False)
        settings = {name: _plain(value) for name, value in parameters.items() if name in FLAGS}
        settings["hidden"] = _widths(self.hidden, rows, earlier)
        settings["test_fraction"] = _plain(self.validation_fraction)
        settings["seed"] = int(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        settings["quiet"] = not self.verbose
        settings["deterministic"] = (
            rows <= SMALL_ROWS and self.workers == "auto" and self.max_seconds is None
        )
        return settings

    def _part(self, rows: int) -> dict[str, Any]:
        """The settings of one `partial_fit` with `rows` rows: one epoch, on all rows."""
        self._parts = getattr(self, "_parts", 0) + 1
        self._rows_seen = getattr(self, "_rows_seen", 0) + rows
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        l2 = weight_decay(self._rows_seen) if self.l2 is None else self.l2
        return {
            "epochs": 1,
            "patience": None,
            "test_fraction": 0.0,
            "l2": l2,
            "seed": int(seed) + self._parts,
        }

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Decision values [N, C] of the rows `X`."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        return self.trained_.model.scores(X, np.float64)


def _plain(value: Any) -> Any:
    """A number of NumPy, such as one drawn by a parameter search, as a number of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _widths(hidden: Any, rows: int, earlier: Trained | None) -> tuple[int, ...]:
    if earlier is not None:
        return tuple(layer.width for layer in earlier.model.network.layers[:-1])
    if isinstance(hidden, str):
        if hidden != "auto":
            raise UsageError(f"hidden: expected 'auto', or widths as in (512, 512); got {hidden!r}")
        return SMALL_HIDDEN if rows <= SMALL_ROWS else LARGE_HIDDEN
    if isinstance(hidden, int | np.integer):
        return (int(hidden),)
    return tuple(_plain(width) for width in hidden)
