"""The geometric median of blocks, with servers that send garbage."""

import numpy as np
import pytest

from hogbatch.cluster.decisions.median import (
    BLOCK,
    block_norms,
    block_slices,
    chosen_blocks,
    chosen_count,
    combined,
    finite_servers,
    median_weights,
)


def median(points, weights=None):
    weights = np.ones(len(points)) if weights is None else np.asarray(weights, np.float64)
    finite = finite_servers(np.stack([block_norms(each) for each in points]))
    return combined(points, median_weights(points, weights, finite))


def honest(count, size=1000):
    random = np.random.default_rng(3)
    direction = random.standard_normal(size)
    noise = 0.3 * random.standard_normal((count, size))
    return (direction + noise).astype(np.float32)


def error(found, points):
    mean = points.mean(0)
    return np.linalg.norm(found - mean) / np.linalg.norm(mean)


@pytest.mark.parametrize("garbage", [1e6, np.nan, np.inf, 1e30])
def test_two_of_five_servers_with_garbage_change_little(garbage):
    points = honest(5)
    points[1] = garbage
    points[4, 7] = np.nan
    assert error(median(points), points[[0, 2, 3]]) < 0.3  # the noise of one server
    points = honest(5)
    points[[0, 3]] = 1e12  # two that agree
    assert error(median(points), points[[1, 2, 4]]) < 0.5


def test_without_garbage_it_is_close_to_the_mean():
    points = honest(5)
    assert error(median(points), points) < 0.1
    equal = np.tile(points[:1], (3, 1))
    np.testing.assert_allclose(median(equal), equal[0], rtol=1e-6)


def test_the_sum_of_distances_is_smallest():
    points = honest(4, 20)
    found = median(points).astype(np.float64)

    def distances(place):
        return np.linalg.norm(points - place, axis=1).sum()

    random = np.random.default_rng(0)
    for _ in range(200):
        assert distances(found) <= distances(found + 0.05 * random.standard_normal(20)) + 1e-6


def test_on_a_line_it_is_the_median_of_the_servers_with_a_weight():
    points = np.array([[0.0], [1.0], [100.0]], np.float32)
    assert median(points)[0] == pytest.approx(1.0, abs=0.02)
    assert median(points, [1, 1, 0])[0] <= 1.0
    assert median(points, [0, 0, 1])[0] == 100.0


def test_nothing_is_merged_without_a_finite_server():
    assert not median(np.full((2, 100), np.nan, np.float32)).any()


def test_the_blocks_with_the_largest_norms_are_chosen():
    values = np.zeros((3, 5 * BLOCK + 3), np.float32)
    values[0, BLOCK] = 3
    values[1, -1] = 2  # in the last block, which is shorter
    values[2] = np.nan
    norms = np.stack([block_norms(each) for each in values])
    blocks = chosen_blocks(norms, 2)
    assert norms.shape == (3, 6) and blocks.tolist() == [1, 5]
    indices = block_slices(blocks, values.shape[1])
    assert indices.tolist() == [*range(BLOCK, 2 * BLOCK), *range(5 * BLOCK, 5 * BLOCK + 3)]


@pytest.mark.parametrize(("size", "expected"), [(0, 0), (10, 1), (6400, 10), (6401, 11)])
def test_a_tenth_of_the_blocks_is_chosen(size, expected):
    assert chosen_count(size) == expected
