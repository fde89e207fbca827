"""Regression with the interface of scikit-learn."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from hogbatch.estimators.base import HogbatchEstimator


class HogbatchRegressor(RegressorMixin, HogbatchEstimator):
    """A network, or linear model, for one number per row, trained with the squared loss.

    The parameters are those of :class:`HogbatchEstimator`.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows `X` [N, F] with numbers `y` [N]; see docs/python.md."""
        return self._fit(X, y, sample_weight, part=False)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one epoch on more rows, from the present model if there is one."""
        return self._fit(X, y, sample_weight, part=True)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The expected numbers of rows `X`: float64[N]."""
        check_is_fitted(self)
        encoding = self.trained_.model.encoding
        return self._scores(X)[:, 0] * encoding.scale + encoding.offset

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of a linear model: float64[F]; see :class:`HogbatchEstimator`."""
        found: NDArray[np.float64] = super().coef_[0]
        return found

    @property
    def intercept_(self) -> float:
        """What a linear model predicts for a row of zeros; errors as of `coef_`."""
        return float(super().intercept_[0])

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, part: bool) -> Self:
        X, y = self._rows_to_fit(X, y, part=part)
        y = y.astype(np.float64)
        return self._train(X, y, sample_weight, None, loss="squared", part=part)
