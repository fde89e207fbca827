"""Batch-reduce GEMM: C (+)= alpha * sum over i of A_i B_i, the one building block of dense layers.

Georganas et al. 2020, "Harnessing Deep Learning via a Single Building Block". BLAS is made for
large matrices; a batch of 16 rows leaves it at half of what the processor can do. Here the tiles
are cut for the number of rows at hand, and what is done to C, is done while it is in registers.

Matrices are `tiles.Matrix`, so that A plain or transposed is a matter of two strides. Any m, n, k;
nothing is read or written outside of the matrices. Layers on 64-byte boundaries are fastest.
"""

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.intrinsics import dot, outer, transpose_square
from hogbatch.kernels.cpu.simd import WIDTH
from hogbatch.kernels.cpu.tiles import (
    IN_TILE,
    MAX_ROWS,
    MAX_VECTORS,
    STORE,
    Blocks,
    Finish,
    Matrix,
)

# Up to so many floats, all of B stays near, and C is best written row by row; beyond, a panel of B
# is used for all rows before the next.
NEAR = 64 * 512
# Dot products go through all of A for every few rows of B, so they take no more of its depth at
# once than stays in the nearest cache: so many floats, but not so little that adding up tells.
NEAREST = 16 * 512
LEAST_DEPTH = 256
ONE_BLOCK = np.zeros((1, 2), np.int64)


@kernel
def address(array):
    """Where array[0] lies: an int64, so that addresses can be counted on."""
    return np.int64(array.ctypes.data)


@kernel
def matrix(array):
    """A C-contiguous float32 array[rows, columns] as a Matrix."""
    return Matrix(address(array), array.shape[1], 1)


@kernel
def part(whole, row, column):
    """The matrix from [row, column] on."""
    start = whole.address + 4 * (row * whole.down + column * whole.across)
    return Matrix(start, whole.down, whole.across)


@kernel
def transposed(plain):
    return Matrix(plain.address, plain.across, plain.down)


@kernel
def whole():
    """The list of blocks of a plain product."""
    return Blocks(address(ONE_BLOCK), 1)


@kernel
def best_vectors(m):
    """How wide a tile fills the most registers when m rows are cut evenly."""
    best, most = 1, 0.0
    for vectors in range(1, MAX_VECTORS + 1):
        tiles = -(-m // min(MAX_ROWS, IN_TILE // vectors))
        filled = m / tiles * vectors
        if filled >= most:
            best, most = vectors, filled
    return best


@kernel
def multiply(m, n, k, a, b, c, blocks, finish):
    """C[m, n] = `finish` of the sum over i of A_i[m, k] B_i[k, n].

    blocks.count blocks, A_i and B_i so many floats behind `a` and `b` as the list says. b.across
    and c.across are 1; `a` may be transposed.
    """
    if m == 0:
        return
    widest = best_vectors(m)
    side_by_side = k * n <= NEAR
    vectors_left, column = n // WIDTH, 0
    while vectors_left > 0:
        panels = -(-vectors_left // widest)
        vectors = -(-vectors_left // panels)  # of even width
        same = panels if side_by_side and vectors * panels == vectors_left else 1
        _panel(m, vectors, WIDTH, same, k, a, b, c, blocks, finish, column)
        column += same * vectors * WIDTH
        vectors_left -= same * vectors
    if column < n:
        _panel(m, 1, n - column, 1, k, a, b, c, blocks, finish, column)


@kernel
def _panel(m, vectors, lanes, panels, k, a, b, c, blocks, finish, column):
    """All rows of some columns of C, in tiles of two heights that differ by one."""
    tiles = -(-m // min(MAX_ROWS, IN_TILE // vectors))
    height, taller = m // tiles, m % tiles
    b, c = part(b, 0, column), part(c, 0, column)
    here = Finish(finish.kind, finish.alpha, finish.bias + 4 * column, finish.floor)
    if panels == 1:
        if taller > 0:
            outer(height + 1, vectors, lanes, taller, 1, k, a, b, c, blocks, here)
            a, c = part(a, taller * (height + 1), 0), part(c, taller * (height + 1), 0)
        outer(height, vectors, lanes, tiles - taller, 1, k, a, b, c, blocks, here)
        return
    row = 0
    for tile in range(tiles):
        rows = height + 1 if tile < taller else height
        outer(rows, vectors, lanes, panels, 0, k, part(a, row, 0), b, part(c, row, 0), blocks, here)
        row += rows


@kernel
def packed_rows(m):
    """How many of m rows `multiply_transposed` wants packed: whole vectors of them, if many."""
    return m // WIDTH * WIDTH if m >= 2 * WIDTH else 0


@kernel
def transpose(m, n, a, c, beta):
    """C[n, m] = A[m, n].T + beta C, beta 0 or 1; both with across = 1."""
    for i in range(0, m, WIDTH):
        for j in range(0, n, WIDTH):
            rows, columns = min(WIDTH, m - i), min(WIDTH, n - j)
            transpose_square(rows, columns, part(a, i, j), part(c, j, i), beta)


@kernel
def multiply_transposed(m, n, k, a, packed, b, c, product, alpha, beta):
    """C[m, n] = alpha A[m, k] B[n, k].T + beta C, beta 0 or 1; all with across = 1.

    The first packed_rows(m) rows go as C.T = B A.T, vectors along m: packed[k, packed_rows(m)] is
    their `transpose`, product[n, packed_rows(m)] scratch. The others go as dot products.
    """
    many = packed_rows(m)
    if many > 0:
        store = Finish(STORE, alpha, product.address, 0.0)
        multiply(n, many, k, b, packed, product, whole(), store)
        transpose(n, many, product, c, beta)
    if many < m:
        few, out = part(a, many, 0), part(c, many, 0)
        depth = max(LEAST_DEPTH, NEAREST // (m - many) // WIDTH * WIDTH)
        for first in range(0, k, depth):
            left, right = part(few, 0, first), part(b, 0, first)
            inner = min(depth, k - first)
            _dots(m - many, n, inner, left, right, out, alpha, beta if first == 0 else 1)


@kernel
def _dots(m, n, k, a, b, c, alpha, beta):
    """`multiply_transposed` by dot products, in tiles of two heights that differ by one."""
    tiles = -(-m // MAX_ROWS)
    height, taller = m // tiles, m % tiles
    if taller > 0:
        _dot_panel(height + 1, taller, n, k, a, b, c, alpha, beta)
        a, c = part(a, taller * (height + 1), 0), part(c, taller * (height + 1), 0)
    _dot_panel(height, tiles - taller, n, k, a, b, c, alpha, beta)


@kernel
def _dot_panel(height, tiles, n, k, a, b, c, alpha, beta):
    columns = 1
    while 2 * columns <= min(MAX_ROWS, WIDTH, IN_TILE // height):
        columns *= 2
    column = 0
    while column < n:
        if n - column < columns:
            columns = 1
        right, out = part(b, column, 0), part(c, 0, column)
        dot(height, columns, tiles, k, a, right, out, alpha, beta)
        column += columns
