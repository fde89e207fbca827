"""Products of small matrices, the building block of dense layers.

The tile shape is chosen for the number of rows, and the epilogue is applied to C while it is in
registers (Georganas et al. 2020, "Harnessing Deep Learning via a Single Building Block"; decision
18). Matrices are `tiles.Matrix`. Any m, n and k are valid, and nothing outside the matrices is read
or written. Layers aligned to 64 bytes are fastest.
"""

from typing import NamedTuple

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.intrinsics import address
from hogbatch.kernels.cpu.simd import WIDTH
from hogbatch.kernels.cpu.tiles import (
    MAX_ACCUMULATORS,
    MAX_ROWS,
    MAX_VECTORS,
    STORE,
    Epilogue,
    Matrix,
    dot,
    outer,
    transpose_block,
)

# A matrix B of up to this many floats stays in cache, and C is computed row by row. With a larger
# B, each panel of B is used for all rows before the next panel.
MAX_CACHED_FLOATS = 64 * 512
# Dot products read all of A for every few rows of B, so k is split such that the part of A in use
# stays in the L1 cache, but not below a depth at which the horizontal sums become noticeable.
L1_FLOATS = 16 * 512
MIN_DEPTH = 256


class Terms(NamedTuple):
    """The sizes of a sum of products A_i[m, depth] B_i[depth, n] of matrices at equal distances."""

    depth: int
    count: int
    left: int  # floats from A_i to A_i+1
    right: int  # floats from B_i to B_i+1


@kernel
def matrix(array):
    """A C-contiguous float32 array[rows, columns] as a Matrix."""
    return Matrix(address(array), array.shape[1], 1)


@kernel
def submatrix(whole, row, column):
    """The part of the matrix that starts at [row, column]."""
    start = whole.address + 4 * (row * whole.row_stride + column * whole.column_stride)
    return Matrix(start, whole.row_stride, whole.column_stride)


@kernel
def transposed(plain):
    return Matrix(plain.address, plain.column_stride, plain.row_stride)


@kernel
def best_tile_width(m):
    """The tile width, in vectors, that fills the most registers when m rows are split evenly."""
    best, max_filled = 1, 0.0
    for vectors in range(1, MAX_VECTORS + 1):
        tiles = -(-m // min(MAX_ROWS, MAX_ACCUMULATORS // vectors))
        filled = m / tiles * vectors
        if filled >= max_filled:
            best, max_filled = vectors, filled
    return best


@kernel
def multiply(m, n, k, a, b, c, epilogue):
    """C[m, n] = `epilogue` of A[m, k] B[k, n].

    The column strides of `b` and `c` are 1; `a` may be transposed.
    """
    sum_of_products(m, n, Terms(k, 1, 0, 0), a, b, c, epilogue)


@kernel
def sum_of_products(m, n, terms, a, b, c, epilogue):
    """`multiply` with a sum of products, of which `a` and `b` are the first matrices."""
    if m == 0:
        return
    widest = best_tile_width(m)
    row_by_row = terms.depth * terms.count * n <= MAX_CACHED_FLOATS
    remaining, column = n // WIDTH, np.int64(0)  # no literal type, here and below
    while column < n:  # one call, because a call with other constants would be compiled again
        vectors, lanes, same = np.int64(1), n - column, np.int64(1)
        if remaining > 0:
            panels = -(-remaining // widest)
            vectors, lanes = -(-remaining // panels), WIDTH  # split evenly
            same = panels if row_by_row and vectors * panels == remaining else 1
        _panel(m, vectors, lanes, same, terms, a, b, c, epilogue, column)
        column += same * vectors * WIDTH
        remaining -= same * vectors


@kernel
def _panel(m, vectors, lanes, panels, terms, a, b, c, epilogue, column):
    """Compute some columns of C for all rows, in tiles of two heights that differ by one."""
    tiles = -(-m // min(MAX_ROWS, MAX_ACCUMULATORS // vectors))
    height, taller = m // tiles, m % tiles
    b, c = submatrix(b, 0, column), submatrix(c, 0, column)
    epilogue = Epilogue(epilogue.kind, epilogue.bias + 4 * column, epilogue.floor)
    if panels == 1:
        if taller > 0:
            _tiles(height + 1, vectors, lanes, taller, panels == 1, terms, a, b, c, epilogue)
            a, c = submatrix(a, taller * (height + 1), 0), submatrix(c, taller * (height + 1), 0)
        _tiles(height, vectors, lanes, tiles - taller, panels == 1, terms, a, b, c, epilogue)
        return
    row = 0
    for tile in range(tiles):
        rows = height + 1 if tile < taller else height
        a_rows, c_rows = submatrix(a, row, 0), submatrix(c, row, 0)
        _tiles(rows, vectors, lanes, panels, panels == 1, terms, a_rows, b, c_rows, epilogue)
        row += rows


@kernel
def _tiles(rows, vectors, lanes, tiles, stacked, terms, a, b, c, epilogue):
    """Compute tiles of `rows` rows by `vectors` vectors, or by `lanes` columns if lanes < WIDTH.

    If they are `stacked`, A and C have rows * tiles rows; otherwise B and C have that many columns.
    """
    row_step, column_step = rows * stacked, (1 - stacked) * vectors * WIDTH
    a_tile, c_tile = row_step * a.row_stride, row_step * c.row_stride + column_step
    left = (a.address, a_tile, a.row_stride, a.column_stride, terms.left)
    right = (b.address, column_step, b.row_stride, terms.right)
    out = (c.address, c_tile, c.row_stride, terms.depth, terms.count)
    update = (epilogue.kind, epilogue.bias, epilogue.floor)
    outer((rows, vectors, tiles, lanes, *left, *right, *out, *update))


@kernel
def packed_rows(m):
    """The number of m rows that `multiply_transposed` needs packed: whole vectors, 0 below two."""
    return m // WIDTH * WIDTH if m >= 2 * WIDTH else 0


@kernel
def transpose(m, n, a, c):
    """C[n, m] = A[m, n].T; both have column stride 1."""
    for i in range(0, m, WIDTH):
        for j in range(0, n, WIDTH):
            rows, columns = min(WIDTH, m - i), min(WIDTH, n - j)
            block, out = submatrix(a, i, j), submatrix(c, j, i)
            transpose_block((rows, columns, block.address, a.row_stride, out.address, c.row_stride))


@kernel
def multiply_transposed(m, n, k, a, packed, b, c, product):
    """C[m, n] = A[m, k] B[n, k].T; all have column stride 1.

    The first packed_rows(m) rows are computed as C.T = B A.T with vectors along m;
    packed[k, packed_rows(m)] is their `transpose` and product[n, packed_rows(m)] is scratch. The
    other rows are computed as dot products.
    """
    packed_count = packed_rows(m)
    if packed_count > 0:
        multiply(n, packed_count, k, b, packed, product, Epilogue(STORE, 0, 0.0))
        transpose(n, packed_count, product, c)
    if packed_count < m:
        rest, out = submatrix(a, packed_count, 0), submatrix(c, packed_count, 0)
        depth = max(MIN_DEPTH, L1_FLOATS // (m - packed_count) // WIDTH * WIDTH)
        for first in range(0, k, depth):
            left, right = submatrix(rest, 0, first), submatrix(b, 0, first)
            inner = min(depth, k - first)
            _dots(m - packed_count, n, inner, left, right, out, first > 0)


@kernel
def _dots(m, n, k, a, b, c, add):
    """C = A B.T, or C += A B.T, by dot products, in tiles of two heights that differ by one."""
    tiles = -(-m // MAX_ROWS)
    height, taller = m // tiles, m % tiles
    if taller > 0:
        _dot_panel(height + 1, taller, n, k, a, b, c, add)
        a, c = submatrix(a, taller * (height + 1), 0), submatrix(c, taller * (height + 1), 0)
    _dot_panel(height, tiles - taller, n, k, a, b, c, add)


@kernel
def _dot_panel(height, tiles, n, k, a, b, c, add):
    columns = 1
    while 2 * columns <= min(MAX_ROWS, WIDTH, MAX_ACCUMULATORS // height):
        columns *= 2
    column = 0
    while column < n:
        if n - column < columns:
            columns = 1
        right, out = submatrix(b, column, 0), submatrix(c, 0, column)
        left = (a.address, height * a.row_stride, a.row_stride)
        product = (out.address, height * c.row_stride, c.row_stride)
        dot((height, columns, tiles, *left, right.address, b.row_stride, *product, k, add))
        column += columns
