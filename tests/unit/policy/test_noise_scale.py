"""The estimate of the gradient noise scale from reports."""

import numpy as np
import pytest

from hogbatch.policy.noise_scale import LEAST_WINDOW, NoiseEstimate

SCALE, PAIRS = 100.0, 64 * 63  # pairs of rows of a measurement


def report(products, *, scale=SCALE, noise=0.5):
    """What a worker reports of rows with |G|² = 1, tr Σ = `scale`, and these `products`."""
    squares = PAIRS * (1.0 + scale)
    return squares, PAIRS * products, (0.01 * squares) ** 2, 0.0, (PAIRS * noise) ** 2


def reports(count, *, scale=SCALE, seed=0, noise=0.5):
    """Reports with random products."""
    for products in np.random.default_rng(seed).normal(1.0, noise, count):
        yield report(products, scale=scale, noise=noise)


def estimated(found, *, rows=100):
    estimate = NoiseEstimate()
    for number, each in enumerate(found, 1):
        estimate.add(each, number * rows)
    return estimate


def test_it_is_the_ratio_of_the_sums():
    """A mean of ratios would be too high, and may even have no value."""
    found = estimated([report(0.5), report(1.5)] * 10, rows=1)
    assert found.scale.rows == pytest.approx(SCALE, rel=1e-3)


def test_a_report_of_many_measurements_is_as_good_as_many_reports():
    alone = list(reports(20))
    together = estimated([list(map(sum, zip(*alone, strict=True)))]).scale
    expected = estimated(alone, rows=0).scale
    assert (together.rows, together.error) == pytest.approx((expected.rows, expected.error))


def test_it_is_not_known_while_its_error_is_large():
    assert NoiseEstimate().scale is None
    assert estimated([report(1.0, noise=0.51)]).scale is None
    assert estimated([report(1.0, noise=0.49)]).scale is not None
    assert estimated([report(-1.0)] * 50).scale is None
    assert estimated([(1e300, 1e-300, 1e300, 1e300, 1e300)] * 50).scale is None  # infinite


def test_its_error_is_that_of_repeated_estimates():
    scales = [estimated(reports(60, seed=seed), rows=1).scale for seed in range(300)]
    spread = np.std([scale.rows for scale in scales])
    assert np.mean([scale.error for scale in scales]) == pytest.approx(spread, rel=0.15)


def test_what_changes_squares_and_products_alike_does_not_change_their_ratio():
    squares, products, *_ = report(1.0)
    same = squares, products, (0.4 * squares) ** 2, 0.16 * squares * products, (0.4 * products) ** 2
    assert estimated([same]).scale.error == pytest.approx(0.0, abs=1e-3)


def test_it_forgets_measurements_from_before_the_window():
    early, late = list(reports(200, noise=0.1)), list(reports(200, scale=1000.0, noise=0.1))
    found = estimated(early + late, rows=LEAST_WINDOW // 10)
    assert found.scale.rows > 800
    assert estimated(early + late, rows=1).scale.rows < 700
