"""Columns brought to one scale by the mean and standard deviation of the training rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Inputs, csr_inputs, dense_inputs

BLOCK_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Standardizer:
    """x becomes (x - mean) / scale.

    Fitted on sparse inputs it does not centre (mean is 0), because centred inputs would no longer
    be sparse.
    """

    mean: NDArray[np.float64]  # [F]
    scale: NDArray[np.float64]  # [F], 1 for a column that never changes

    def apply(self, inputs: Inputs) -> Inputs:
        """Standardise a copy of `inputs`, whose features are those that were fitted.

        Sparse inputs stay sparse, unless the mean was fitted on dense ones.
        """
        if not len(inputs.indptr):
            return dense_inputs(self._centred(inputs.dense))
        if self.mean.any():
            return self.apply(csr.to_dense(inputs, len(self.mean)))
        with np.errstate(over="ignore"):  # kernels skip rows that are not finite, and count them
            values = (inputs.values / self.scale[inputs.indices]).astype(np.float32)
        return csr_inputs(inputs.indptr, inputs.indices, values)

    def _centred(self, dense: NDArray[np.float32]) -> NDArray[np.float32]:
        out = np.empty_like(dense)
        with np.errstate(over="ignore"):
            for start in range(0, len(dense), BLOCK_ROWS):  # in float64, without a copy of it all
                rows = slice(start, start + BLOCK_ROWS)
                out[rows] = (dense[rows] - self.mean) / self.scale
        return out


def fit(inputs: Inputs, features: int) -> Standardizer:
    """Measure the columns of the training rows (dense[N, F] or CSR, N ≥ 1)."""
    sparse = len(inputs.indptr) > 0
    mean, variance = _sparse_moments(inputs, features) if sparse else _dense_moments(inputs.dense)
    # The float64 sum of equal float32 numbers is exact (up to 2^29 rows), and so is their mean:
    # the variance of a column that never changes is exactly 0.
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)
    return Standardizer(np.zeros(features) if sparse else mean, scale)


def _dense_moments(
    dense: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean = dense.mean(axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    for start in range(0, len(dense), BLOCK_ROWS):
        squares += ((dense[start : start + BLOCK_ROWS] - mean) ** 2).sum(axis=0)
    return mean, squares / len(dense)


def _sparse_moments(
    inputs: Inputs, features: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = len(inputs.indptr) - 1
    stored = np.bincount(inputs.indices, minlength=features)
    mean = np.bincount(inputs.indices, inputs.values, features) / rows
    distances = (inputs.values - mean[inputs.indices]) ** 2
    squares = np.bincount(inputs.indices, distances, features) + (rows - stored) * mean**2
    return mean, squares / rows
