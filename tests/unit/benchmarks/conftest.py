"""A small problem for the tests of peers."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from benchmarks.peers.contract import Problem, Rows


@pytest.fixture
def signs():
    """A linear problem that any linear peer learns: the label is the sign of one feature."""
    random = np.random.default_rng(0)
    x = random.standard_normal((600, 5)).astype(np.float32)
    rows = Rows(csr_array(x), (x[:, 2] > 0).astype(np.float32))
    train, test = (Rows(rows.x[part], rows.y[part]) for part in (slice(500), slice(500, 600)))
    return Problem("logistic", (), 1, train, test)
