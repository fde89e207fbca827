import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.data.batch import multi_labels
from hogbatch.model.metrics import Frequencies, propensities, psp_at


def lists_of(rows):
    indptr = np.cumsum([0, *map(len, rows)])
    return multi_labels(indptr, np.array([label for row in rows for label in row], np.int32))


def by_definition(k, top, rows, propensity):
    """PSP@k, label by label."""
    reached = reachable = 0.0
    for columns, row in zip(top, rows, strict=True):
        reached += sum(1 / propensity[column] for column in columns[:k] if column in row)
        reachable += sum(sorted((1 / propensity[label] for label in row), reverse=True)[:k])
    return reached / reachable if reachable else math.nan


def test_propensities_follow_the_formula():
    c = (math.log(100) - 1) * 2.5**0.55
    expected = [1 / (1 + c * math.exp(-0.55 * math.log(n + 1.5))) for n in (80, 0, 30)]
    found = propensities(Frequencies(100, np.array([80, 0, 30])))
    assert found == pytest.approx(expected, rel=1e-12)
    for rows in (0, 1, 2):  # too few
        assert propensities(Frequencies(rows, np.array([rows, 0]))).tolist() == [1, 1]


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 5), width=st.sampled_from([5, 6, 40]))
def test_psp_is_its_definition(seed, k, width):
    random = np.random.default_rng(seed)
    rows = [np.flatnonzero(random.random(width) < random.random()).tolist() for _ in range(9)]
    for chosen in (rows, [[], []], []):  # without labels there is none
        top = np.array([random.permutation(width)[:5] for _ in chosen], np.int32).reshape(-1, 5)
        propensity = random.uniform(0.1, 1, width)
        expected = by_definition(k, top, chosen, propensity)
        assert psp_at(k, top, lists_of(chosen), propensity) == pytest.approx(expected, nan_ok=True)
