import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.coordinator.merge_rules import merge_weights, sum_scales


@pytest.mark.parametrize(
    ("updates", "batch_sizes", "weights"),
    [
        ([30, 10], [512, 512], [0.75, 0.25]),  # shares of the updates
        ([10, 10], [768, 256], [0.75, 0.25]),  # of the batches: equal updates
        ([10], [512], [1.0]),
        ([0, 5], [512, 64], [0.0, 1.0]),
        ([0, 0], [512, 512], [0.0, 0.0]),
    ],
)
def test_weights_are_shares(updates, batch_sizes, weights):
    assert merge_weights(updates, batch_sizes) == weights


def test_equal_changes_are_averaged_and_orthogonal_ones_added():
    equal, orthogonal, opposite = (2.0, 2.0, 8.0), (2.0, 3.0, 5.0), (2.0, 2.0, 0.0)
    one, other, of_sum = zip(equal, orthogonal, opposite, strict=True)
    assert sum_scales([one, other], of_sum) == [0.5, 1.0, 1.0]


@given(st.lists(st.lists(st.floats(-10, 10), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_scaled_sum_is_never_longer_than_orthogonal_changes(changes):
    total = np.sum(changes, axis=0)
    squares = [[float(np.dot(change, change))] for change in changes]
    (scale,) = sum_scales(squares, [float(np.dot(total, total))])
    bound = sum(each for (each,) in squares)
    assert 0.0 <= scale <= 1.0
    assert scale**2 * np.dot(total, total) <= bound * (1 + 1e-9) + 1e-12
