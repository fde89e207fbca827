"""Classification with any number of labels per row, with the interface of scikit-learn."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import validate_data

from hogbatch.data.encode import Encoding
from hogbatch.data.memory import RowLabels, is_list, labels_of
from hogbatch.errors import UsageError
from hogbatch.estimators.base import FLOATS
from hogbatch.estimators.classifier import HogbatchClassifier


class HogbatchMultilabel(HogbatchClassifier):
    """A network, or linear model, for rows with any number of labels.

    The labels of the rows are a matrix [N, C] of 0 and 1, dense or sparse, or a list of label
    numbers per row. With one class per row, y[N], this is a :class:`HogbatchClassifier`, whose
    parameters it has.
    """

    _lists = False  # whether rows have any number of labels
    _sparse = False  # whether those given to `fit` were a sparse matrix

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows `X` [N, F] with labels `y` [N, C]; see docs/python.md."""
        labels = _label_lists(y)
        self._set_labels(labels, None, y, part=False)
        if labels is None:
            return super().fit(X, y, sample_weight)
        return self._fit_lists(X, labels, sample_weight, part=False)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one epoch on more rows, from the present model if there is one.

        In the first call, `classes` are all label numbers that may occur in later ones, unless `y`
        is a matrix.
        """
        labels = _label_lists(y)
        self._set_labels(labels, classes, y, part=True)
        if labels is None:
            return super().partial_fit(X, y, classes, sample_weight)
        return self._fit_lists(X, labels, sample_weight, part=True)

    def predict(self, X: Any) -> Any:
        """The labels with a probability above 0.5: a matrix [N, C] of 0 and 1.

        It is sparse if that given to `fit` was.
        """
        if not self._lists:
            return super().predict(X)
        marks = self._scores(X) > 0
        return csr_matrix(marks, dtype=np.int64) if self._sparse else marks.astype(np.int64)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of the labels: float64[N, C], above 0 for those that `predict` chooses."""
        return self._scores(X) if self._lists else super().decision_function(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each label, independent of the others: float64[N, C]."""
        if not self._lists:
            return super().predict_proba(X)
        proba: NDArray[np.float64] = np.exp(-np.logaddexp(0, -self._scores(X)))
        return proba

    def _set_labels(self, labels: RowLabels | None, classes: Any, y: Any, *, part: bool) -> None:
        """Set the labels of a new model; UsageError if those of an earlier one differ in form."""
        if self._continues(part):
            if self._lists != (labels is not None):
                raise UsageError("y: expected the form of the first call: classes, or lists")
            return
        self._lists = labels is not None
        self._sparse = hasattr(y, "tocsr")
        if labels is None:
            return
        assert labels.lists is not None
        most = -1 if classes is None else int(np.max(classes))
        count = max(labels.outputs, most + 1, int(labels.lists.indices.max(initial=-1)) + 1)
        if not count:
            raise UsageError("y: expected a label; got only empty lists")
        self.classes_ = np.arange(count)

    def _fit_lists(self, X: Any, labels: RowLabels, sample_weight: Any, *, part: bool) -> Self:
        if self.class_weight is not None:
            raise UsageError("class_weight needs one class per row; give sample_weight instead")
        X = validate_data(
            self, X, accept_sparse="csr", dtype=FLOATS, reset=not self._continues(part)
        )
        assert labels.lists is not None
        if len(labels.lists.indptr) != X.shape[0] + 1:
            raise UsageError(
                f"y: expected the labels of {X.shape[0]} rows; got {len(labels.lists.indptr) - 1}"
            )
        encoding = Encoding("multilabel", (), len(self.classes_))
        return self._train(X, labels, sample_weight, encoding, loss="multilabel", part=part)


def _label_lists(y: Any) -> RowLabels | None:
    """The labels of a matrix of 0 and 1, or lists of label numbers; None for other forms."""
    lists = isinstance(y, list | tuple) and len(y) > 0 and is_list(y[0])
    if not lists and not hasattr(y, "tocsr") and _is_vector(y):
        return None
    rows = y.shape[0] if hasattr(y, "shape") else len(y)
    labels = labels_of(y, rows, "y")
    return labels if labels.lists is not None else None


def _is_vector(y: Any) -> bool:
    """Whether `y` is missing, or has one label per row."""
    return y is None or type_of_target(y) != "multilabel-indicator"
