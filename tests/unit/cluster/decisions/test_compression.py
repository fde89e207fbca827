"""bfloat16 and top-k; tests/unit/cluster/test_exchange.py shows that nothing is lost."""

import numpy as np
import pytest

from hogbatch.cluster.decisions.compression import (
    add_top_k,
    from_bfloat16,
    to_bfloat16,
    top_count,
    top_k,
)


def as_float(*bits):
    return np.array(bits, np.uint32).view(np.float32)


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
        (0x8000_0000, 0x8000),  # -0.0
        (0x0000_0001, 0x0000),  # the smallest subnormal number
    ],
)
def test_rounding_to_nearest_even(bits, expected):
    assert to_bfloat16(as_float(bits)).tolist() == [expected]


def test_nan_stays_nan():
    nan = as_float(0x7F80_0001, 0x7FFF_FFFF, 0xFFC0_0000, 0xFFFF_FFFF)
    assert np.isnan(from_bfloat16(to_bfloat16(nan))).all()


def test_all_bfloat16_numbers_survive_the_way_back():
    halves = np.arange(1 << 16).astype(np.uint16)
    back = to_bfloat16(from_bfloat16(halves))
    nan = np.isnan(from_bfloat16(halves))
    assert (back[~nan] == halves[~nan]).all()


def test_top_k_takes_the_largest_magnitudes():
    indices, values = top_k(np.array([1, -5, 0, 3, np.nan], np.float32), 3)
    assert indices.tolist() == [1, 3, 4] and indices.dtype == np.int32
    assert values[:2].tolist() == [-5, 3]


@pytest.mark.parametrize(("size", "expected"), [(0, 0), (1, 1), (31, 1), (64, 2), (1000, 31)])
def test_the_number_of_top_k(size, expected):
    assert top_count(size) == expected
    assert len(top_k(np.ones(size, np.float32), expected)[0]) == expected


@pytest.mark.parametrize("index", [-1, 3])
def test_indices_beyond_the_array_are_refused(index):
    with pytest.raises(ValueError, match="from 0 to 2"):
        add_top_k(np.zeros(3, np.float32), np.array([index], np.int32), np.ones(1, np.float32))
