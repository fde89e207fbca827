"""The common part of the three estimators."""

from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state, check_scalar
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from hogbatch.config.backbone import shape_of, show_shape
from hogbatch.config.layers import Shape
from hogbatch.config.train import FLAGS
from hogbatch.data.encode import Encoding
from hogbatch.data.frames import is_frame
from hogbatch.data.memory import flat_rows, is_sparse
from hogbatch.data.order import FEW_ROWS
from hogbatch.errors import UsageError
from hogbatch.estimators.coefficients import coefficients, column_norms
from hogbatch.estimators.training import NOT_HELD_OUT, Trained, default_validation, train_rows
from hogbatch.run.arrays import GivenArrays
from hogbatch.run.defaults import HIDDEN, weight_decay
from hogbatch.run.small import ENSEMBLE_ROWS

SMALL_ROWS: Final = 10_000  # up to here, one thread trains


@dataclass(kw_only=True, eq=False, repr=False)  # scikit-learn has its own __repr__ and __hash__
class HogbatchEstimator(BaseEstimator):
    """Parameters, training and scores of an estimator.

    Parameters
    ----------
    hidden : "auto", tuple of int or int
        Widths of the hidden layers; () is a linear model; "auto": (512, 512), or for sparse rows
        of one class or number (256,), or () if there are more features than rows.
    layers : str
        Layers of a network for pictures or sequences, in place of `hidden`, such as
        "conv:32x3x3,relu,pool:2,dense:128" (docs/pictures.md). `X` is then an array [N, H, W],
        [N, H, W, C] or [N, T, F], or rows of numbers.
    input_shape : str
        Shape of a picture of `layers` as in "28x28x1"; needed for rows of numbers.
    activation : "relu", "selu", "sigmoid" or "tanh"
    members : int or None
        Number of models whose predictions are averaged. They have different seeds, and hold out
        different rows where `early_stopping` holds out a part. None: 5 in this case if a model
        is trained in seconds, but 1 for `hidden=()`, `warm_start` or `refit`.
    recipe : "auto", "tabular", "linear" or "fast"
        Defaults of optimizer, schedule and weight decay (docs/batch-policy.md).
    optimizer : "auto", "sgd", "momentum", "adagrad" or "adam"
    lr : float or None
        Learning rate; None: depends on optimizer, loss and data.
    schedule : "auto", "constant", "cosine", "flat-cos", "one-cycle" or "coslog4"
        Factor of the learning rate over the epochs of `fit`.
    l2 : float or None
        L2 penalty, under Adam a decoupled weight decay; None: depends on the recipe.
    dropout : float
        Fraction of the outputs of hidden layers that each update leaves out.
    augment : str
        Random changes of pictures in training, such as "flip,shift:2" (docs/pictures.md).
    epochs : int or None
        Maximum number of passes over the training rows; None: 10, more for small data; for most
        networks on 10,000 dense rows or more, short runs find it.
    max_seconds : float or None
        Maximum training time.
    cpu_batch, gpu_batch : str or None
        Limits of the batch sizes, "MIN:MAX".
    scale : "auto", "none", "standard", "max", "robust", "ple" or "quantile"
        Scaling of the features.
    drop, categorical, numeric, text : tuple of str
        Columns of a table that are not used, or used as categories, numbers or texts, by name, or
        by number from 0; the kinds of the others follow from their values (docs/data.md).
    sequence : str
        "words" or "characters", also "words:50" with a length: the column `text` of data frames
        becomes a sequence of ids for `layers` that begin with "embed" (docs/pictures.md).
    decimal : ".", "," or None
        Decimal mark of columns of text such as 1.234; None: found by inspection.
    workers : str
        "auto", or for example "cpu:8,gpu:0". With "auto", up to 10,000 rows are trained on by one
        thread, and the result depends only on data, parameters and `random_state`.
    policy : str
        Batch policy.
    early_stopping : bool or "auto"
        Whether a part of the rows is held out for validation: the model with the lowest loss on
        them is kept. False: all rows are trained on, for `epochs` epochs. "auto": with 100 to
        9,999 rows, where the last model is often not the best, and in classifiers with more rows
        if five members are the default (docs/command-line.md); with `refit`, if the rows are sparse
        and the learning rate does not fall, as in networks. It does not apply to `partial_fit`.
    validation_fraction : float or None
        Fraction of the rows that `early_stopping` holds out, above 0 and below 1. None: a fifth of
        fewer than 10,000 rows, else a tenth.
    n_iter_no_change : int or None
        Epochs without a lower validation loss after which `early_stopping` ends the training.
        None: depends on the rows; without end where the learning rate has a schedule.
    refit : bool
        Whether `early_stopping` is followed by a second training, on all rows, for as many rows as
        gave the lowest validation loss.
    warm_start : bool
        Whether `fit` continues from the model of an earlier `fit`.
    random_state : int, RandomState or None
        Determines the initial weights, the row order and the validation rows.
    verbose : bool
        Whether progress is printed.
    """

    hidden: Any = field(default="auto", kw_only=False)
    layers: str = ""
    input_shape: str = ""
    activation: str = "relu"
    members: int | None = None
    recipe: str = "auto"
    optimizer: str = "auto"
    lr: float | None = None
    schedule: str = "auto"
    l2: float | None = None
    dropout: float = 0.0
    augment: str = "none"
    epochs: int | None = None
    max_seconds: float | None = None
    cpu_batch: str | None = None
    gpu_batch: str | None = None
    scale: str = "auto"
    drop: Any = ()
    categorical: Any = ()
    numeric: Any = ()
    text: Any = ()
    sequence: str = ""
    decimal: str | None = None
    workers: str = "auto"
    policy: str = "adaptive"
    early_stopping: bool | str = "auto"
    validation_fraction: float | None = None
    n_iter_no_change: int | None = None
    refit: bool = False
    warm_start: bool = False
    random_state: Any = None
    verbose: bool = False

    # Set by `fit` and `partial_fit`.
    n_features_in_: int = field(init=False)  # F, the values of a row
    input_shape_: Shape = field(init=False)  # (height, width, channels) with `layers`, else ()
    trained_: Trained = field(init=False)
    # training loss, about once per epoch, before refit
    loss_curve_: list[float] = field(init=False)
    # validation loss, as often; [] without early stopping
    validation_scores_: list[float] = field(init=False)
    n_iter_: int = field(init=False)  # epochs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        tags.input_tags.three_d_array, tags.input_tags.sparse = bool(self.layers), not self.layers
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trained_")

    @property
    def model_(self) -> Any:
        """The trained :class:`hogbatch.Model`."""
        check_is_fitted(self)
        return self.trained_.model

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of a linear model, in the units of the columns of X: float64[C, F].

        Two classes have one row (C = 1). AttributeError for a network with hidden layers, or if a
        column is not a number in every row.
        """
        return coefficients(self.model_, self.n_features_in_).weights

    @property
    def intercept_(self) -> Any:
        """The scores of a linear model for a row of zeros, float64[C]; errors as of `coef_`."""
        return coefficients(self.model_, self.n_features_in_).intercept

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Norm of the coefficients of a linear model, for each column of X: float64[F].

        They are those of the scaled and encoded features: a category has several. AttributeError
        for a network with hidden layers.
        """
        return column_norms(self.model_, self.n_features_in_)

    def _rows(self, X: Any, *, reset: bool, least: int = 1) -> Any:
        """`X` as rows that `hogbatch.train` takes, at least `least` of them.

        Data frames are not converted, because their columns have types. Pictures become flat rows.
        """
        if reset:
            self.input_shape_ = ()
        if reset and self.layers and not self.sequence:
            found = getattr(X, "shape", np.shape(X))[1:]
            self.input_shape_ = shape_of(self.layers, self.input_shape, found)
        if self.input_shape_ and not (is_frame(X) or is_sparse(X)):
            X = flat_rows(np.asarray(X), self.input_shape_)
        return validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=None,
            ensure_all_finite="allow-nan",
            ensure_min_samples=least,
            skip_check_array=is_frame(X) and hasattr(X, "shape"),
            reset=reset,
        )

    def _rows_to_fit(self, X: Any, y: Any, *, part: bool) -> tuple[Any, NDArray[Any]]:
        """Training rows and labels: one number, text or boolean per row, or several numbers."""
        X = self._rows(X, reset=not self._continues(part), least=1 if part else 2)
        y = check_array(self._labels(y), ensure_2d=False, dtype=None, input_name="y")
        check_consistent_length(X, y)
        return X, y

    def _labels(self, y: Any) -> Any:
        """`y` in the shape in which it is trained on."""
        return column_or_1d(y, warn=True)

    def _train(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        encoding: Encoding | None,
        *,
        loss: str,
        part: bool,
    ) -> Self:
        """Train on validated rows; `part`: only for the epoch of a `partial_fit`.

        See `_continues`. None as `encoding`: it is chosen from the labels.
        """
        rows, continues = X.shape[0], self._continues(part)
        earlier = self.trained_ if continues else None
        settings = self._settings(rows, earlier, part=part) | {"loss": loss}
        if part:
            settings |= self._part(rows)
        given = GivenArrays(
            X,
            y,
            sample_weight=sample_weight,
            class_weight=getattr(self, "class_weight", None),
            encoding=encoding,
            model=None if earlier is None else earlier.model,
            part=part,
        )
        if self.early_stopping == "auto" and rows >= FEW_ROWS and not part:
            classes = encoding is not None and encoding.kind in ("binary", "classes")
            settings |= default_validation(given, settings) if classes else NOT_HELD_OUT
        trained = train_rows(given, settings, earlier)
        if not continues:
            self.loss_curve_, self.validation_scores_, self.n_iter_ = [], [], 0
        self.loss_curve_ = self.loss_curve_ + trained.losses
        self.validation_scores_ = self.validation_scores_ + trained.validation_losses
        self.n_iter_ += round(trained.epochs)
        self.trained_ = trained
        return self

    def _continues(self, part: bool) -> bool:
        """Whether a fit continues from the present model: a `partial_fit`, or a warm start."""
        return hasattr(self, "trained_") and (part or self.warm_start)

    def _settings(self, rows: int, earlier: Trained | None, *, part: bool) -> dict[str, Any]:
        parameters = self.get_params(deep=False)
        settings = {name: _plain(value) for name, value in parameters.items() if name in FLAGS}
        settings.pop("class_weight", None)  # it may be a dict, which is not a setting
        settings["hidden"] = _widths(self.hidden, earlier)
        if earlier is not None:
            settings["layers"] = earlier.layers
        if self.input_shape_:
            settings["input_shape"] = show_shape(self.input_shape_)
        if earlier is not None and self.recipe == "auto":  # other rows might have another one
            settings["recipe"] = earlier.recipe
        if part and settings["hidden"] is None and not self.input_shape_:
            settings["hidden"] = HIDDEN  # its rows may be few of all rows
        if self.members is None and self.warm_start:
            settings["members"] = 1
        if part or self.warm_start:  # later fits may have the same rows, whose labels are in means
            settings["category_means"] = "none"
        settings |= self._held_out(rows)
        settings["seed"] = int(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        settings["quiet"] = not self.verbose
        settings["deterministic"] = (
            rows <= SMALL_ROWS and self.workers == "auto" and self.max_seconds is None
        )
        return settings

    def _held_out(self, rows: int) -> dict[str, Any]:
        """The settings for the rows that are held out, and for what they decide."""
        if self.early_stopping not in (True, False, "auto"):
            raise UsageError(
                f'early_stopping must be True, False or "auto"; got {self.early_stopping!r}'
            )
        automatic = self.early_stopping == "auto"
        if not (rows >= ENSEMBLE_ROWS if automatic else self.early_stopping):
            return NOT_HELD_OUT
        fraction, patience = self.validation_fraction, self.n_iter_no_change
        if patience is not None:
            check_scalar(patience, "n_iter_no_change", Integral, min_val=1)
        if fraction is not None:
            within = {"min_val": 0, "max_val": 1, "include_boundaries": "neither"}
            check_scalar(fraction, "validation_fraction", Real, **within)
        return NOT_HELD_OUT | {
            "validation_fraction": _plain(fraction),
            "patience": _plain(patience),
            "refit": _plain(self.refit),
        }

    def _part(self, rows: int) -> dict[str, Any]:
        """The settings of one `partial_fit` with `rows` rows: one epoch, on all rows."""
        self._parts = getattr(self, "_parts", 0) + 1
        self._rows_seen = getattr(self, "_rows_seen", 0) + rows
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        l2 = weight_decay(self._rows_seen) if self.l2 is None else self.l2
        one: dict[str, Any] = {"epochs": 1, "schedule": "constant"}
        if getattr(self, "label_transform", None) == "auto":  # its rows may be few of all rows
            one["label_transform"] = "none"
        return NOT_HELD_OUT | one | {"l2": l2, "seed": int(seed) + self._parts}

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Decision values [N, C] of the rows `X`."""
        check_is_fitted(self)
        return self.trained_.model.scores(self._rows(X, reset=False), np.float64)

    def _probabilities(self, X: Any) -> NDArray[np.float64]:
        """Probabilities [N, C] of the rows `X`."""
        scores: Any = self._scores(X)  # the loss keeps float64
        return np.asarray(self.trained_.model.loss.probabilities(scores), np.float64)


def _plain(value: Any) -> Any:
    """A number of NumPy, such as one drawn by a parameter search, as a number of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _widths(hidden: Any, earlier: Trained | None) -> Any:
    if earlier is not None:
        return earlier.model.network.hidden
    if isinstance(hidden, int | np.integer):
        return (int(hidden),)
    if isinstance(hidden, str):
        return None if hidden == "auto" else hidden
    return tuple(_plain(width) for width in hidden)
