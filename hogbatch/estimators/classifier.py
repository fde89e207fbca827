"""Classification with the interface of scikit-learn."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from hogbatch.data.encode import Encoding
from hogbatch.errors import UsageError
from hogbatch.estimators.base import HogbatchEstimator


@dataclass(kw_only=True, eq=False, repr=False)
class HogbatchClassifier(ClassifierMixin, HogbatchEstimator):
    """A network, or linear model, for classes: numbers, text or booleans.

    The parameters are those of :class:`HogbatchEstimator`, and
    `class_weight`: None, "balanced" or a dict of the weights of classes, by which the
    `sample_weight` is multiplied;
    `threshold`: None, "f1" or "balanced_accuracy", which is highest on the rows of `early_stopping`
    at the probability above which `predict` gives the second of two classes. None: 0.5;
    `label_smoothing`: the fraction of each label that is distributed evenly over all classes;
    `temperature`: "off" or "auto", by which the scores are divided so that the log loss of the rows
    of `early_stopping` is lowest;
    `category_means`: "auto" adds the mean labels of categories with many values to their features,
    "none" does not.
    """

    category_means: str = "auto"
    class_weight: Any = None
    threshold: str | None = None
    label_smoothing: float = 0.0
    temperature: str = "off"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows `X` [N, F] of classes `y` [N]; see docs/python.md."""
        X, y = self._rows_to_fit(X, y, part=False)
        if not self._continues(part=False):
            self._set_classes(np.unique(y))
        return self._fit(X, y, sample_weight, part=False)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one epoch on more rows, from the present model if there is one.

        The first call needs all `classes` that may occur in later ones.
        """
        X, y = self._rows_to_fit(X, y, part=True)
        if not self._continues(part=True):
            if classes is None:
                raise UsageError("classes is missing: the first partial_fit needs all classes")
            self._set_classes(unique_labels(classes))
        elif classes is not None and not np.array_equal(self.classes_, unique_labels(classes)):
            raise UsageError(
                f"classes: expected those of the first call, {self.classes_}; got {classes}"
            )
        return self._fit(X, y, sample_weight, part=True)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores: float64[N] for two classes, above 0 for the second one; else [N, C]."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row, or the one by the `threshold`: [N]."""
        scores: Any = self._scores(X)  # float64
        model = self.trained_.model
        likely: NDArray[Any] = self.classes_[model.loss.predict(scores - model.score_threshold)]
        return likely

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probabilities of the classes, in the order of `classes_`: float64[N, C]."""
        return self._probabilities(X)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def _set_classes(self, classes: NDArray[Any]) -> None:
        if len(classes) < 2:
            raise UsageError(f"expected at least two classes; got one class: {classes[0]}")
        self.classes_ = classes

    def _fit(self, X: Any, y: NDArray[Any], sample_weight: Any, *, part: bool) -> Self:
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise UsageError(f"y: expected classes {self.classes_}; got {unknown[0]!r}")
        two = len(self.classes_) == 2
        encoding = Encoding(
            "binary" if two else "classes",
            tuple(self.classes_.tolist()),
            1 if two else len(self.classes_),
        )
        loss = "logistic" if two else "softmax"
        return self._train(X, y, sample_weight, encoding, loss=loss, part=part)

    def _rows_to_fit(self, X: Any, y: Any, *, part: bool) -> tuple[Any, NDArray[Any]]:
        X, y = super()._rows_to_fit(X, y, part=part)
        check_classification_targets(y)
        return X, y
