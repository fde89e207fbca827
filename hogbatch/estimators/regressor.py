"""Regression with the interface of scikit-learn."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from hogbatch.config.losses import CHOICES, LOSSES, OfNumbers
from hogbatch.errors import UsageError
from hogbatch.estimators.base import HogbatchEstimator


@dataclass(kw_only=True, eq=False, repr=False)
class HogbatchRegressor(RegressorMixin, HogbatchEstimator):
    """A network, or linear model, for one or more numbers per row.

    The parameters are those of :class:`HogbatchEstimator`, and `loss`: "squared", "huber",
    "absolute", "quantile:Q" with Q between 0 and 1, or "poisson" for numbers of at least 0.
    `label_transform`: "none", "log1p" to train on log(1 + y) with loss "squared", or "auto":
    "log1p" if `y` has a heavy tail and short runs have a lower error on held-out rows with it, but
    "none" for `partial_fit`. `category_means`: "auto" adds the mean labels of categories with many
    values to their features, "none" does not.
    """

    loss: str = "squared"
    label_transform: str = "auto"
    category_means: str = "auto"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows `X` [N, F] with numbers `y` [N] or [N, T]; see docs/python.md."""
        return self._fit(X, y, sample_weight, part=False)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one epoch on more rows, from the present model if there is one."""
        return self._fit(X, y, sample_weight, part=True)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The numbers predicted for rows `X`: means, medians or quantiles by `loss`.

        float64[N], or [N, T] of several targets.
        """
        check_is_fitted(self)
        model = self.trained_.model
        scores: Any = self._scores(X)  # float64
        return model.encoding.predictions_of(model.loss.predict(scores))

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of a linear model: float64[F], or [T, F]; see :class:`HogbatchEstimator`."""
        found: NDArray[np.float64] = super().coef_
        return found[0] if len(found) == 1 else found

    @property
    def intercept_(self) -> Any:
        """What a linear model predicts for a row of zeros, float or [T]; errors as of `coef_`."""
        found: NDArray[np.float64] = super().intercept_
        return float(found[0]) if len(found) == 1 else found

    def _labels(self, y: Any) -> Any:
        shape = np.asarray(y).shape
        return y if len(shape) == 2 and shape[1] > 1 else super()._labels(y)

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, part: bool) -> Self:
        known = [name for name in CHOICES if isinstance(LOSSES[name], OfNumbers)]
        if self.loss not in LOSSES or not isinstance(LOSSES[self.loss], OfNumbers):
            raise UsageError(f"loss: expected one of {', '.join(known)}; got {self.loss!r}")
        X, y = self._rows_to_fit(X, y, part=part)
        y = y.astype(np.float64)
        return self._train(X, y, sample_weight, None, loss=self.loss, part=part)
