"""Search for the first NaN or Inf."""

import numpy as np
import pytest

from hogbatch.store import scan
from hogbatch.store.scan import first_not_finite

PART = 64
SIZE = 5 * PART + 3
LARGEST = np.finfo(np.float32).max
SMALLEST = np.finfo(np.float32).smallest_subnormal
NOT_FINITE = {
    "NaN": 0x7FC0_0000,
    "-NaN": 0xFFC0_0000,
    "signalling NaN": 0x7F80_0001,
    "-signalling NaN": 0xFF80_0001,
    "largest NaN": 0xFFFF_FFFF,
    "inf": 0x7F80_0000,
    "-inf": 0xFF80_0000,
}


@pytest.fixture(autouse=True)
def several_parts(monkeypatch):
    monkeypatch.setattr(scan, "BLOCK_VALUES", PART)


@pytest.fixture
def values():
    """All kinds of finite numbers, with extreme values at block boundaries."""
    values = np.random.default_rng(0).standard_normal(SIZE, np.float32)
    extremes = LARGEST, -LARGEST, SMALLEST, -SMALLEST, 0.0, -0.0
    for start in (0, PART, 2 * PART, SIZE - len(extremes)):
        values[start : start + len(extremes)] = extremes
        values[start - 1] = -LARGEST
    return values


@pytest.mark.parametrize("bits", NOT_FINITE.values(), ids=NOT_FINITE)
@pytest.mark.parametrize(
    "index", [0, 1, PART - 1, PART, 2 * PART - 1, 5 * PART - 1, 5 * PART, SIZE - 1]
)
def test_a_cell_is_found_wherever_it_lies(values, index, bits):
    values.view(np.uint32)[index] = bits
    assert first_not_finite(values) == index


def test_finite_numbers_are_passed_and_the_first_of_several_others_is_named(values):
    assert first_not_finite(values) is first_not_finite(values[:0]) is None
    values[[PART + 7, PART + 5, 3 * PART]] = np.inf, np.nan, -np.inf
    assert first_not_finite(values) == PART + 5


def test_parts_as_they_are_in_a_run(values, monkeypatch):
    monkeypatch.undo()
    many = np.resize(values, 2 * scan.BLOCK_VALUES + 1)
    assert first_not_finite(many) is None
    many[-1] = -np.inf
    assert first_not_finite(many) == 2 * scan.BLOCK_VALUES
