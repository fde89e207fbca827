"""Label vectors and nearest rows: labels described by the training rows that have them.

The vector of label l is z_l = unit(sum over rows i of y_il / |y_i| * x_i), with rows x_i of norm 1
(PIFA; Yu et al. 2022, "PECOS: Prediction for Enormous and Correlated Output Spaces"). A row's
cosine with z_l, times a weight and a power of the number of rows with the label, is added to the
label's score. Unlike a hidden layer, this leads directly from a rare feature to a rare label.

Nearest rows add, times a weight, the sum of the squared cosines of a row with those of the NEAREST
training rows nearest to it that have the label.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs
from hogbatch.kernels.contract import Floats

VALUES: Final = 50  # of a vector: its largest ones
NEAREST: Final = 50  # training rows that score the labels of a row
STORED: Final = 1 << 24  # most values of training rows in a model, 128 MiB
CELLS: Final = 1 << 25  # scores that are ranked at a time with the vectors, 128 MiB


class LabelVectors(NamedTuple):
    """Label vectors as one list of labels for each feature, and what the model adds of them."""

    indptr: NDArray[np.int64]  # [F + 1]
    labels: NDArray[np.int32]  # [n], ascending within the list of a feature
    values: Floats  # [n]

    def times(self, factors: Floats) -> "LabelVectors":
        """The vectors multiplied by factors[C]."""
        return self._replace(values=self.values * factors[self.labels])

    def scores(self, inputs: Inputs, outputs: int, dtype: Any = np.float32) -> NDArray[Any]:
        """The products of the unit vectors of CSR rows with all vectors: dtype[B, outputs]."""
        scores = np.zeros((len(inputs.indptr) - 1, outputs), dtype)
        for row, start in enumerate(inputs.indptr[:-1]):
            own, stored = scores[row], slice(start, inputs.indptr[row + 1])
            values = inputs.values[stored].astype(dtype)
            norm = np.sqrt(np.square(values, dtype=np.float64).sum()) or 1.0
            for feature, value in zip(inputs.indices[stored], values / dtype(norm), strict=True):
                listed = slice(self.indptr[feature], self.indptr[feature + 1])
                own[self.labels[listed]] += value * self.values[listed]
        return scores


class NearestRows(NamedTuple):
    """The N training rows and their labels."""

    vectors: LabelVectors  # of rows instead of labels, times the root of the weight
    indptr: NDArray[np.int64]  # [N + 1]
    labels: NDArray[np.int32]  # [n], ascending within a row

    def times(self, weight: float) -> "NearestRows":
        """The rows with all scores multiplied by `weight`."""
        values = self.vectors.values * np.float32(np.sqrt(weight))
        return self._replace(vectors=self.vectors._replace(values=values))

    def scores(self, inputs: Inputs, outputs: int, dtype: Any = np.float32) -> NDArray[Any]:
        """The scores of the labels of CSR rows: dtype[B, outputs]."""
        products = self.vectors.scores(inputs, len(self.indptr) - 1, dtype)
        scores = np.zeros((len(products), outputs), dtype)
        for own, cosines in zip(scores, products, strict=True):
            near = np.flatnonzero(cosines > 0)
            for row in near[np.argsort(-cosines[near], kind="stable")[:NEAREST]]:
                listed = self.labels[self.indptr[row] : self.indptr[row + 1]]
                own[listed] += cosines[row] ** 2
        return scores


def factors(weight: float, exponent: float, rows: NDArray[np.int64]) -> Floats:
    """The factor of each label's cosine, of which rows[C] have the label: float32[C]."""
    return (weight * np.maximum(rows, 1.0) ** exponent).astype(np.float32)
