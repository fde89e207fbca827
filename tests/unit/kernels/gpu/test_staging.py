"""Copies of the rows of a batch, from arrays of any alignment."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from tests.support.kernel_backends import DEVICES
from tests.support.kernel_cases import examples
from tests.support.pairs import pairs

ROWS = 40
# Near the 4 cells of a load, the 32 of a line, and the 128 that a group reads ahead.
WIDTHS = [1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 54, 127, 128, 129, 260]
UNTOUCHED = -7
batches = st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=60)


def cells(dtype, *shape):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


@pairs(device_kernels=DEVICES, width=WIDTHS, dtype={"float32": np.float32, "int32": np.int32})
def test_rows_are_copied(device_kernels, width, dtype):
    random = np.random.default_rng(width)
    for batch in (1, 2, 7, 50) + (20_000,) * (width == 5):  # more rows than threads
        source, rows = cells(dtype, ROWS, width), random.integers(0, ROWS, batch)
        out = np.full((batch, width), UNTOUCHED, dtype)
        device_kernels.copy_rows(source, rows, out)
        assert_array_equal(out, source[rows])


def test_nothing_is_copied_without_rows_or_columns(device_kernels):
    device_kernels.copy_rows(
        cells(np.float32, ROWS, 3), np.empty(0, np.int64), np.ones((0, 3), np.float32)
    )
    device_kernels.copy_rows(
        np.empty((ROWS, 0), np.int32), np.array([1, 2]), np.empty((2, 0), np.int32)
    )
    labels, out = cells(np.float32, ROWS), np.zeros(4, np.float32)  # without an axis of columns
    device_kernels.copy_rows(labels, np.array([3, 39, 0, 3]), out)
    assert_array_equal(out, [3, 39, 0, 3])


@st.composite
def lists(draw):
    """An indptr of ROWS lists, many of them empty, some longer than a group reads ahead."""
    lengths = st.sampled_from([0, 0, 1, 2, 5, 12, 31, 33, 100, 150])
    drawn = draw(st.lists(lengths, min_size=ROWS, max_size=ROWS))
    return np.concatenate(([0], np.cumsum(drawn))).astype(np.int64)


@examples
@given(indptr=lists(), rows=batches)
def test_lists_are_selected_and_copied(device_kernels, indptr, rows):
    source, rows = cells(np.int32, indptr[-1]), np.array(rows)
    expected = [source[indptr[row] : indptr[row + 1]] for row in rows]
    starts, selected = np.full(len(rows), -1), np.full(len(rows) + 1, -1)
    stored = np.array([-1])
    device_kernels.select_rows(indptr, rows, starts, selected, stored)
    assert_array_equal(starts, indptr[rows])
    assert_array_equal(selected, np.cumsum([0, *map(len, expected)]))
    assert stored[0] == selected[-1]
    out = np.full(stored[0] + 3, UNTOUCHED, np.int32)  # the buffer may have more room
    device_kernels.copy_cells(source, starts, selected, out)
    assert_array_equal(out[:-3], np.concatenate(expected))
    assert (out[-3:] == UNTOUCHED).all()


@pytest.mark.parametrize("batch", [1, 1023, 1024, 1025, 5000])
def test_more_lists_than_threads_are_selected(device_kernels, batch):
    random = np.random.default_rng(batch)
    indptr = np.concatenate(([0], np.cumsum(random.integers(0, 9, ROWS))))
    rows = random.integers(0, ROWS, batch)
    starts, selected, stored = np.zeros(batch, int), np.zeros(batch + 1, int), np.zeros(1, int)
    device_kernels.select_rows(indptr, rows, starts, selected, stored)
    assert_array_equal(starts, indptr[rows])
    assert_array_equal(selected, np.cumsum([0, *np.diff(indptr)[rows]]))
    assert stored[0] == selected[-1]
