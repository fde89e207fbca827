import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.cluster.decisions.merging import MegaBatch, merge_weights, sum_scales


@pytest.mark.parametrize(
    ("done", "weights"),
    [
        ([(30, 512, 1.0), (10, 512, 0.0)], [0.75, 0.25]),  # shares of the updates
        ([(10, 768, 1.0), (10, 256, 1.0)], [0.75, 0.25]),  # of the batches: equal updates
        ([(20, 512, 0.01), (10, 512, 0.01), (10, 512, 0.01)], [0.5 * 1.1, 0.25, 0.25 * 0.9]),
        ([(10, 512)] * 4, [0.25 * 1.1, 0.25, 0.25, 0.25 * 0.9]),  # equal servers
        ([(10, 512)], [1.0]),
        ([(0, 512), (5, 64, 1.0)], [0.0, 1.0]),
        ([(0, 512)] * 2, [0.0, 0.0]),
    ],
)
def test_weights_are_shares_that_are_perturbed_while_models_are_small(done, weights):
    assert merge_weights([MegaBatch(*each) for each in done]) == pytest.approx(weights)


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
