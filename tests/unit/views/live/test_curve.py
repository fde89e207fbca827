import math

import pytest

from hogbatch.views.live.curve import curve, value_range

FALLING = [(float(n), 10.0 - n) for n in range(11)]
STEEP = [(0.0, 1.0), (1.0, 1.0), (1.001, 0.0), (2.0, 0.0)]


@pytest.mark.parametrize(
    ("points", "width", "unicode", "rows"),
    [
        ([(0.0, 1.0), (1.0, 0.0)], 4, True, ["⠑⢄  ", "  ⠑⢄"]),
        ([(n, 5.0 - n) for n in range(6)], 6, False, ["'-.   ", "   '-."]),
        (STEEP, 9, False, ["'''''|   ", "     |   ", "     |..."]),
        ([(0.0, 3.0), (9.0, 3.0)], 5, False, ["     ", "-----", "     "]),
        ([(2.0, 3.0)], 5, False, ["     ", "-    ", "     "]),
        ([], 5, True, ["     "] * 2),
        ([(1.0, math.inf), (2.0, -math.inf), (3.0, math.nan)], 5, True, ["     "] * 2),
    ],
    ids=["braille", "ASCII", "jump", "constant", "single", "nothing", "nothing finite"],
)
def test_a_curve_is_drawn(points, width, unicode, rows):
    assert curve(points, width, len(rows), unicode) == rows


def test_values_that_are_not_finite_are_left_out():
    with_gaps = [pair for x, y in FALLING for pair in ((x, y), (x, math.nan))]
    assert curve(with_gaps, 8, 3, unicode=True) == curve(FALLING, 8, 3, unicode=True)


def test_an_outlier_does_not_flatten_the_curve():
    values = [0.5 + 0.01 * n for n in range(20)]
    assert value_range(values) == (min(values), max(values))
    low, high = value_range([1e6, *values])
    assert low == 0.5 and high < 2
