import math

import pytest

from hogbatch.views.live.curve import curve, value_range

FALLING = [(float(n), 10.0 - n) for n in range(11)]


def test_braille_has_two_by_four_dots_in_each_character():
    assert curve([(0.0, 1.0), (1.0, 0.0)], 4, 2, unicode=True) == ["⠑⢄  ", "  ⠑⢄"]


def test_ascii_has_three_heights_in_each_line():
    steps = [(0.0, 5.0), (1.0, 4.0), (2.0, 3.0), (3.0, 2.0), (4.0, 1.0), (5.0, 0.0)]
    assert curve(steps, 6, 2, unicode=False) == ["'-.   ", "   '-."]


def test_a_jump_is_connected():
    steep = [(0.0, 1.0), (1.0, 1.0), (1.001, 0.0), (2.0, 0.0)]
    rows = curve(steep, 9, 3, unicode=False)
    assert rows == ["'''''|   ", "     |   ", "     |..."]


def test_a_constant_value_is_in_the_middle():
    rows = curve([(0.0, 3.0), (9.0, 3.0)], 5, 3, unicode=False)
    assert rows == ["     ", "-----", "     "]


def test_a_single_point_is_one_character():
    rows = curve([(2.0, 3.0)], 5, 3, unicode=True)
    assert sum(char != " " for row in rows for char in row) == 1


@pytest.mark.parametrize("points", [[], [(1.0, math.nan)], [(1.0, math.inf), (2.0, -math.inf)]])
def test_nothing_finite_is_an_empty_picture(points):
    assert curve(points, 5, 2, unicode=True) == ["     "] * 2


def test_values_that_are_not_finite_are_left_out():
    with_gaps = [
        (each, value) for point in FALLING for each, value in (point, (point[0], math.nan))
    ]
    assert curve(with_gaps, 8, 3, unicode=True) == curve(FALLING, 8, 3, unicode=True)


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize(("width", "height"), [(1, 1), (16, 3), (60, 10), (0, 0)])
def test_a_picture_has_the_size_that_was_asked_for(unicode, width, height):
    rows = curve(FALLING, width, height, unicode)
    assert [len(row) for row in rows] == [width] * height
    assert "".join(rows).isascii() != unicode or not width


def test_an_outlier_does_not_flatten_the_curve():
    values = [0.5 + 0.01 * n for n in range(20)]
    assert value_range(values) == (min(values), max(values))
    low, high = value_range([1e6, *values])
    assert low == 0.5 and high < 2
