"""Both forms in which evaluations store scores, and what they must contain."""

import numpy as np
from numpy.testing import assert_allclose

from hogbatch.kernels.contract import TOP, RowScores


def both_forms(rows, columns):
    """Room for all scores of N rows, and for their best columns."""
    no_scores, no_columns = np.empty((0, 0), np.float32), np.empty((0, 0), np.int32)
    return (
        RowScores(np.full((rows, columns), np.nan, np.float32), no_columns),
        RowScores(no_scores, np.full((rows, TOP), -2, np.int32)),
    )


def assert_stored(stored, rows, scores, rtol=1e-5):
    """Check one form after an evaluation of `rows`, whose scores [B, C] are given."""
    scores = scores[:, : stored.scores.shape[1] or None]
    if stored.scores.size:
        assert_allclose(stored.scores[rows], scores, rtol=rtol, atol=1e-5)
        others = np.delete(stored.scores, rows, axis=0)
        assert np.isnan(others).all()
        return
    best, k = stored.best[rows], min(TOP, scores.shape[1])
    assert (best[:, k:] == -1).all()
    found = np.take_along_axis(scores, best[:, :k], axis=1)
    assert_allclose(found, -np.sort(-scores, axis=1)[:, :k], rtol=rtol, atol=1e-5)
