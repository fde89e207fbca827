"""bfloat16, top-k, and that nothing is lost with error feedback."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.cluster.decisions.compression import (
    add_top_k,
    from_bfloat16,
    to_bfloat16,
    top_count,
    top_k,
)


def as_float(bits):
    return np.array([bits], np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x3F80_0000, 0x3F80),  # 1.0
        (0x3F80_8000, 0x3F80),  # a tie: down to even
        (0x3F81_8000, 0x3F82),  # a tie: up to even
        (0x3F80_8001, 0x3F81),
        (0xBF80_7FFF, 0xBF80),
        (0x7F7F_FFFF, 0x7F80),  # beyond the largest bfloat16
        (0x7F80_0000, 0x7F80),  # infinity
        (0xFF80_0000, 0xFF80),
        (0x8000_0000, 0x8000),  # -0.0
        (0x0000_0001, 0x0000),  # the smallest subnormal number
    ],
)
def test_rounding_to_nearest_even(bits, expected):
    assert to_bfloat16(as_float(bits)).tolist() == [expected]


@pytest.mark.parametrize("bits", [0x7F80_0001, 0x7FFF_FFFF, 0xFFC0_0000, 0xFFFF_FFFF])
def test_nan_stays_nan(bits):
    assert np.isnan(from_bfloat16(to_bfloat16(as_float(bits)))).all()


@given(st.floats(width=32, allow_nan=False, min_value=-(2.0**120), max_value=2.0**120))
def test_the_error_is_at_most_half_a_unit(value):
    value = np.float32(value)
    rounded = from_bfloat16(to_bfloat16(np.array([value])))[0]
    assert abs(float(rounded) - float(value)) <= max(abs(float(value)) * 2.0**-8, 2.0**-133)


def test_all_bfloat16_numbers_survive_the_way_back():
    halves = np.arange(1 << 16).astype(np.uint16)
    back = to_bfloat16(from_bfloat16(halves))
    nan = np.isnan(from_bfloat16(halves))
    assert (back[~nan] == halves[~nan]).all()


def test_top_k_takes_the_largest_magnitudes():
    indices, values = top_k(np.array([1, -5, 0, 3, np.nan], np.float32), 3)
    assert indices.tolist() == [1, 3, 4]
    assert indices.dtype == np.int32
    assert values[:2].tolist() == [-5, 3]


@pytest.mark.parametrize(("size", "expected"), [(0, 0), (1, 1), (31, 1), (64, 2), (1000, 31)])
def test_the_default_number_of_top_k(size, expected):
    assert top_count(size) == expected
    assert len(top_k(np.ones(size, np.float32), expected)[0]) == expected


def test_indices_beyond_the_array_are_refused():
    with pytest.raises(ValueError, match="from 0 to 2"):
        add_top_k(np.zeros(3, np.float32), np.array([3], np.int32), np.ones(1, np.float32))


def test_error_feedback_sends_everything_in_the_long_run():
    random = np.random.default_rng(0)
    total, sent, residual = np.zeros(100), np.zeros(100, np.float32), np.zeros(100, np.float32)
    for _ in range(300):
        change = random.standard_normal(100).astype(np.float32) + np.float32(0.5)
        total += change
        wanted = change + residual
        indices, values = top_k(wanted, 3)
        add_top_k(sent, indices, values)
        wanted[indices] = 0
        residual = wanted
    np.testing.assert_allclose(sent + residual, total, rtol=1e-4)
    assert np.abs(residual).max() < 0.25 * np.abs(total).max()
