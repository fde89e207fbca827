"""Classification with any number of labels per row, with the interface of scikit-learn."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.base import ClassifierMixin

from hogbatch.data.encode import Encoding
from hogbatch.data.row_labels import labels_of
from hogbatch.errors import UsageError
from hogbatch.estimators.base import HogbatchEstimator


class HogbatchMultilabel(ClassifierMixin, HogbatchEstimator):
    """A network, or linear model, for rows with any number of labels.

    The labels of the rows are a matrix [N, C] of 0 and 1, dense or sparse, or a list of label
    numbers per row. The parameters are those of :class:`HogbatchEstimator`.
    """

    _sparse = False  # whether the labels given to `fit` were a sparse matrix

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows `X` [N, F] with labels `y` [N, C]; see docs/python.md."""
        return self._fit(X, y, None, sample_weight, part=False)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one epoch on more rows, from the present model if there is one.

        In the first call, `classes` are all label numbers that may occur in later ones, unless `y`
        is a matrix.
        """
        return self._fit(X, y, classes, sample_weight, part=True)

    def predict(self, X: Any) -> Any:
        """The labels with a probability above 0.5: a matrix [N, C] of 0 and 1.

        It is sparse if that given to `fit` was.
        """
        marks = self._scores(X) > 0
        return csr_matrix(marks, dtype=np.int64) if self._sparse else marks.astype(np.int64)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of the labels: float64[N, C], above 0 for those that `predict` chooses."""
        return self._scores(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each label, independent of the others: float64[N, C]."""
        return self._probabilities(X)

    def _fit(self, X: Any, y: Any, classes: Any, sample_weight: Any, *, part: bool) -> Self:
        continues = self._continues(part)
        X = self._rows(X, reset=not continues, least=1 if part else 2)
        labels = labels_of(y, X.shape[0], "y")
        if labels.label_lists is None:
            raise UsageError(
                "y: expected a matrix of 0 and 1, or a list of label numbers per row; got one "
                "label per row, for which there is HogbatchClassifier"
            )
        if not continues:
            most = -1 if classes is None else int(np.max(classes))
            listed = int(labels.label_lists.indices.max(initial=-1))
            if not (count := max(labels.classes_hint, most + 1, listed + 1)):
                raise UsageError("y: expected a label; got only empty lists")
            self.classes_, self._sparse = np.arange(count), hasattr(y, "tocsr")
        encoding = Encoding("multilabel", (), len(self.classes_))
        return self._train(X, y, sample_weight, encoding, loss="multilabel", part=part)
