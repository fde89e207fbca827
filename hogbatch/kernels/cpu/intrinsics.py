"""Numba intrinsics: the address of an array, and the micro-kernels of `tiles`."""

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hogbatch.kernels.cpu import library
from hogbatch.kernels.cpu.simd import FLOAT, INT, POINTER, WIDTH, number
from hogbatch.kernels.cpu.tiles import DOT, OUTER, TRANSPOSE, write

library.load("brgemm", write)

_WHOLE = types.intp


@intrinsic
def address(typing, array):
    """The address of array[0], as an int64 for address arithmetic."""

    def generate(context, builder, signature, arguments):
        proxy = cgutils.create_struct_proxy(signature.args[0])
        data = proxy(context, builder, value=arguments[0]).data
        return builder.ptrtoint(data, INT)

    return types.int64(array), generate


def _matrix(builder, value):
    """Unpack a `Matrix` in generated code into pointer, row stride and column stride."""
    start, row_stride, column_stride = cgutils.unpack_tuple(builder, value)
    return builder.inttoptr(start, POINTER), row_stride, column_stride


@intrinsic
def outer(typing, rows, vectors, lanes, tiles, stacked, k, a, b, c, epilogue):
    """Compute `tiles` tiles of `rows` rows by `vectors` vectors, stacked or side by side.

    `stacked` 1: C[rows * tiles, vectors * WIDTH] from A[rows * tiles, k], B[k, vectors * WIDTH].
    `stacked` 0: C[rows, vectors * WIDTH * tiles] from A[rows, k], B[k, vectors * WIDTH * tiles].
    If lanes < WIDTH, a tile has `lanes` columns, and `vectors` and `stacked` are 1.
    b.column_stride = c.column_stride = 1.
    """

    def generate(context, builder, signature, arguments):
        rows, vectors, lanes, tiles, stacked, k, a, b, c, epilogue = arguments
        a, a_row, a_column = _matrix(builder, a)
        b, b_row, _ = _matrix(builder, b)
        c, c_row, _ = _matrix(builder, c)
        kind, bias, floor = cgutils.unpack_tuple(builder, epilogue)
        width = builder.mul(vectors, number(WIDTH))
        row_step = builder.mul(rows, stacked)  # from one tile to the next
        column_step = builder.mul(width, builder.sub(number(1), stacked))
        c_tile = builder.add(builder.mul(row_step, c_row), column_step)
        passed = [
            *(rows, vectors, tiles, lanes),
            *(a, builder.mul(row_step, a_row), a_row, a_column),
            *(b, column_step, b_row, c, c_tile, c_row, k),
            *(kind, builder.inttoptr(bias, POINTER), builder.fptrunc(floor, FLOAT)),
        ]
        library.call(builder, OUTER, passed)
        return context.get_dummy_value()

    return types.void(*[_WHOLE] * 6, a, b, c, epilogue), generate


@intrinsic
def dot(typing, rows, columns, tiles, k, a, b, c, add):
    """Compute `tiles` stacked tiles of `rows` rows by `columns` columns.

    C[rows * tiles, columns] = A[rows * tiles, k] B[columns, k].T, or += if `add`. The column stride
    of all three is 1. `columns` is `dot_columns(rows)` or 1.
    """

    def generate(context, builder, signature, arguments):
        rows, columns, tiles, k, a, b, c, add = arguments
        a, a_row, _ = _matrix(builder, a)
        b, b_row, _ = _matrix(builder, b)
        c, c_row, _ = _matrix(builder, c)
        passed = [
            *(rows, columns, tiles, a, builder.mul(rows, a_row), a_row),
            *(b, b_row, c, builder.mul(rows, c_row), c_row, k, add),
        ]
        library.call(builder, DOT, passed)
        return context.get_dummy_value()

    return types.void(*[_WHOLE] * 4, a, b, c, _WHOLE), generate


@intrinsic
def transpose_square(typing, rows, columns, a, c):
    """C[columns, rows] = A[rows, columns].T; rows, columns <= WIDTH, column strides 1."""

    def generate(context, builder, signature, arguments):
        rows, columns, a, c = arguments
        a, a_row, _ = _matrix(builder, a)
        c, c_row, _ = _matrix(builder, c)
        passed = [rows, columns, a, a_row, c, c_row]
        library.call(builder, TRANSPOSE, passed)
        return context.get_dummy_value()

    return types.void(_WHOLE, _WHOLE, a, c), generate
