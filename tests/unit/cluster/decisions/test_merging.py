import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.cluster.decisions.merging import (
    MegaBatch,
    merge_weights,
    merged_step,
    sum_scales,
)


def test_weights_are_the_shares_of_the_updates():
    done = [MegaBatch(30, 512, norm=1.0), MegaBatch(10, 512, norm=0.0)]
    assert merge_weights(done) == pytest.approx([0.75, 0.25])


def test_with_equal_updates_weights_are_the_shares_of_the_batches():
    done = [MegaBatch(10, 768, norm=1.0), MegaBatch(10, 256, norm=1.0)]
    assert merge_weights(done) == pytest.approx([0.75, 0.25])


def test_small_models_are_perturbed():
    done = [MegaBatch(20, 512, 0.01), MegaBatch(10, 512, 0.01), MegaBatch(10, 512, 0.01)]
    assert merge_weights(done) == pytest.approx([0.5 * 1.1, 0.25, 0.25 * 0.9])


def test_equal_servers_are_perturbed_too():
    done = [MegaBatch(10, 512)] * 4
    assert merge_weights(done) == pytest.approx([0.25 * 1.1, 0.25, 0.25, 0.25 * 0.9])


def test_a_single_server_has_all_the_weight():
    assert merge_weights([MegaBatch(10, 512)]) == [1.0]


def test_a_server_without_updates_has_no_weight():
    assert merge_weights([MegaBatch(0, 512), MegaBatch(5, 64, norm=1.0)]) == [0.0, 1.0]
    assert merge_weights([MegaBatch(0, 512)] * 2) == [0.0, 0.0]


batches = st.builds(MegaBatch, st.integers(0, 10**6), st.integers(1, 10**5), st.floats(0.0, 1.0))


@given(st.lists(batches, min_size=1, max_size=8))
def test_weights_are_fractions_that_sum_to_about_one(done):
    weights = merge_weights(done)
    assert all(0.0 <= each <= 1.1 for each in weights)
    expected = 1.0 if any(each.updates for each in done) else 0.0
    assert sum(weights) == pytest.approx(expected, abs=0.1 + 1e-9)


def test_a_step_has_the_weighted_changes_and_a_part_of_the_step_before():
    changes = [np.array([1, 2], np.float32), np.array([10, 20], np.float32)]
    step = merged_step(changes, [0.5, 0.25], np.array([4, 0], np.float32), 0.5)
    assert step.tolist() == [0.5 + 2.5 + 2.0, 1.0 + 5.0] and step.dtype == np.float32


def test_servers_that_add_the_step_and_subtract_their_change_agree():
    random = np.random.default_rng(0)
    merged = random.normal(size=5).astype(np.float32)
    changes = [random.normal(size=5).astype(np.float32) for _ in range(3)]
    step = merged_step(changes, [1.0] * 3, np.zeros(5, np.float32), 0.0)
    copies = [merged + change + (step - change) for change in changes]
    for copy in copies:
        np.testing.assert_allclose(copy, merged + step, rtol=1e-5)


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


def test_servers_that_change_the_same_go_as_far_as_one():
    changes = [[4.0]] * 3  # of length 2
    (scale,) = sum_scales(changes, [36.0])
    assert scale * 6.0 == pytest.approx(2.0)
