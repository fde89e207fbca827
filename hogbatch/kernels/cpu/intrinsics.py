"""The micro-kernels of `tiles` as Numba calls them; without the JIT, NumPy in their place."""

import ctypes

import numpy as np
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from hogbatch.kernels.cpu import library
from hogbatch.kernels.cpu.simd import FLOAT, INT, POINTER, WIDTH, number
from hogbatch.kernels.cpu.tiles import ACTIVATE, ADD, DOT, OUTER, STORE, TRANSPOSE, write

if not config.DISABLE_JIT:
    library.load("brgemm", write)

_WHOLE = types.intp


def _matrix(builder, value):
    """A `Matrix` in generated code: pointer, down, across."""
    address, down, across = cgutils.unpack_tuple(builder, value)
    return builder.inttoptr(address, POINTER), down, across


@intrinsic
def outer(typing, rows, vectors, lanes, tiles, down, k, a, b, c, blocks, finish):
    """`tiles` tiles of `rows` rows by `vectors` vectors, one below the other, or side by side.

    `down` 1: C[rows * tiles, vectors * WIDTH] from A[rows * tiles, k] and B[k, vectors * WIDTH].
    `down` 0: C[rows, vectors * WIDTH * tiles] from A[rows, k] and B[k, vectors * WIDTH * tiles].
    Summed over `blocks`. lanes < WIDTH: a tile has so many columns, `vectors` is 1, and `down` too.
    b.across = c.across = 1.
    """

    def generate(context, builder, signature, arguments):
        rows, vectors, lanes, tiles, down, k, a, b, c, blocks, finish = arguments
        a, a_down, a_across = _matrix(builder, a)
        b, b_down, _ = _matrix(builder, b)
        c, c_down, _ = _matrix(builder, c)
        offsets, count = cgutils.unpack_tuple(builder, blocks)
        kind, alpha, bias, floor = cgutils.unpack_tuple(builder, finish)
        below = builder.mul(rows, down)  # rows to the next tile, and columns
        beside = builder.mul(builder.mul(vectors, number(WIDTH)), builder.sub(number(1), down))
        c_tile = builder.add(builder.mul(below, c_down), beside)
        passed = [
            *(rows, vectors, tiles, lanes, a, builder.mul(below, a_down), a_down, a_across),
            *(b, beside, b_down, c, c_tile, c_down),
            *(builder.inttoptr(offsets, INT.as_pointer()), count, k),
            *(kind, builder.fptrunc(alpha, FLOAT), builder.inttoptr(bias, POINTER)),
            builder.fptrunc(floor, FLOAT),
        ]
        library.call(builder, OUTER, passed)
        return context.get_dummy_value()

    return types.void(*[_WHOLE] * 6, a, b, c, blocks, finish), generate


@intrinsic
def dot(typing, rows, columns, tiles, k, a, b, c, alpha, beta):
    """`tiles` tiles of `rows` rows by `columns` columns, one below the other.

    C[rows * tiles, columns] = alpha A[rows * tiles, k] B[columns, k].T + beta C, beta 0 or 1. All
    three have across = 1. `columns` is `dot_columns(rows)` or 1.
    """

    def generate(context, builder, signature, arguments):
        rows, columns, tiles, k, a, b, c, alpha, beta = arguments
        a, a_down, _ = _matrix(builder, a)
        b, b_down, _ = _matrix(builder, b)
        c, c_down, _ = _matrix(builder, c)
        passed = [
            *(rows, columns, tiles, a, builder.mul(rows, a_down), a_down, b, b_down),
            *(c, builder.mul(rows, c_down), c_down, k, builder.fptrunc(alpha, FLOAT), beta),
        ]
        library.call(builder, DOT, passed)
        return context.get_dummy_value()

    return types.void(*[_WHOLE] * 4, a, b, c, types.float64, _WHOLE), generate


@intrinsic
def transpose_square(typing, rows, columns, a, c, beta):
    """C[columns, rows] = A[rows, columns].T + beta C, both at most WIDTH, with across = 1."""

    def generate(context, builder, signature, arguments):
        rows, columns, a, c, beta = arguments
        a, a_down, _ = _matrix(builder, a)
        c, c_down, _ = _matrix(builder, c)
        passed = [rows, columns, a, a_down, c, c_down, beta]
        library.call(builder, TRANSPOSE, passed)
        return context.get_dummy_value()

    return types.void(_WHOLE, _WHOLE, a, c, _WHOLE), generate


def _floats(address, down, across, rows, columns):
    """A view[rows, columns] of memory."""
    span = (rows - 1) * down + (columns - 1) * across + 1 if rows and columns else 0
    cells = np.frombuffer((ctypes.c_float * span).from_address(int(address)), np.float32)
    return np.lib.stride_tricks.as_strided(cells, (rows, columns), (4 * down, 4 * across))


if config.DISABLE_JIT:

    def outer(rows, vectors, lanes, tiles, down, k, a, b, c, blocks, finish):
        height = rows * tiles if down else rows
        width = (vectors - 1) * WIDTH + lanes if down else vectors * WIDTH * tiles
        products = np.zeros((height, width), np.float32)
        offsets = (ctypes.c_int64 * (2 * blocks.count)).from_address(int(blocks.address))
        for a_offset, b_offset in zip(offsets[::2], offsets[1::2], strict=True):
            left = _floats(a.address + 4 * a_offset, a.down, a.across, height, k)
            products += left @ _floats(b.address + 4 * b_offset, b.down, 1, k, width)
        out = _floats(c.address, c.down, 1, height, width)
        if finish.kind == STORE:
            out[...] = np.float32(finish.alpha) * products
        elif finish.kind == ACTIVATE:
            shifted = products + _floats(finish.bias, 0, 1, 1, width)
            out[...] = np.where(finish.floor > shifted, np.float32(finish.floor), shifted)
        else:
            out += products * np.float32(1.0 if finish.kind == ADD else finish.alpha)

    def dot(rows, columns, tiles, k, a, b, c, alpha, beta):
        left = _floats(a.address, a.down, 1, rows * tiles, k)
        products = np.float32(alpha) * (left @ _floats(b.address, b.down, 1, columns, k).T)
        out = _floats(c.address, c.down, 1, rows * tiles, columns)
        out[...] = out + products if beta else products

    def transpose_square(rows, columns, a, c, beta):
        out = _floats(c.address, c.down, 1, columns, rows)
        turned = _floats(a.address, a.down, 1, rows, columns).T
        out[...] = out + turned if beta else turned
