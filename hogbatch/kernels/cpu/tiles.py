"""The micro-kernels of batch-reduce GEMM: tiles of C that stay in registers.

    outer       C[m, n] from A[m, k] and B[k, n]: vectors run along n, one element of A at a time
    dot         C[m, n] from A[m, k] and B[n, k]: vectors run along k, added up at the end
    transpose   one square

Each is a Numba intrinsic that writes its code once for every tile shape (`simd.Writer`) and picks
the shape at run time. Each does a run of tiles in one call, so that the processor can begin a tile
while it still stores the one before. Sketches of both: Georganas et al. 2020, algorithms 1 and 2.
"""

import ctypes
from typing import Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from hogbatch.kernels.cpu import library
from hogbatch.kernels.cpu.simd import (
    FLOAT,
    INT,
    POINTER,
    REGISTERS,
    WIDTH,
    ZERO,
    Values,
    Writer,
    number,
    picks,
)

# What becomes of a tile's sum of products S.
STORE: Final = 0  # C = alpha S
ADD: Final = 1  # C += S
ADD_SCALED: Final = 2  # C += alpha S
ACTIVATE: Final = 3  # C = max(floor, S + bias[n])

# Names in the library.
OUTER: Final = f"hogbatch_outer_{WIDTH}"
DOT: Final = f"hogbatch_dot_{WIDTH}"
TRANSPOSE: Final = f"hogbatch_transpose_{WIDTH}"

MOST_ROWS: Final = 8
MOST_VECTORS: Final = 4
IN_TILE: Final = 24 if REGISTERS == 32 else 12  # accumulators; the rest holds operands


class Matrix(NamedTuple):
    """Element [i, j] is the float32 at address + 4 (i * down + j * across).

    An address and not an array: passing arrays on costs Numba a reference count each time. Whoever
    makes a Matrix keeps its array alive.
    """

    address: int
    down: int
    across: int


class Blocks(NamedTuple):
    """Where the blocks of a batch-reduce product begin, in floats from where A and B begin."""

    address: int  # of int64[count, 2]
    count: int


class Finish(NamedTuple):
    """What becomes of a sum of products."""

    kind: int  # STORE, ADD, ...
    alpha: float
    bias: int  # address
    floor: float


def outer_rows(vectors: int) -> int:
    """Most rows of an outer tile of `vectors` vectors."""
    return min(MOST_ROWS, IN_TILE // vectors)


def dot_columns(rows: int) -> int:
    """Columns of a dot tile of `rows` rows: a power of two."""
    return 1 << (min(MOST_ROWS, WIDTH, IN_TILE // rows).bit_length() - 1)


# --- outer ----------------------------------------------------------------------------------------

# tiles, lanes; a, its steps by tile, row, k; b, its steps by tile, k; c, its steps by tile, row;
# blocks, their number, k; finish: kind, alpha, bias, floor
_OUTER_ARGUMENTS = [
    *(INT, INT, POINTER, INT, INT, INT, POINTER, INT, INT, POINTER, INT, INT),
    *(INT.as_pointer(), INT, INT, INT, FLOAT, POINTER, FLOAT),
]


def _outer(module: ir.Module, rows: int, vectors: int, masked: bool) -> ir.Function:
    """The function of one tile shape; `masked`: only some lanes of its only vector count."""
    w = Writer(module, f"outer_{rows}x{vectors}{'_masked' if masked else ''}", _OUTER_ARGUMENTS)
    tiles, lanes, a, a_tile, a_row, a_k, b, b_tile, b_k, c, c_tile, c_row = w.function.args[:12]
    blocks, block_count, k, kind, alpha, bias, floor = w.function.args[12:]
    mask = w.first(lanes) if masked else None
    alphas, floors = w.spread(alpha), w.spread(floor)

    def sums_of(a: ir.Value, b: ir.Value) -> Values:
        def block(i: ir.Value, sums: Values) -> Values:
            offsets = w.build.gep(blocks, [w.times(2, i)])
            a_here = w.at(a, w.build.load(offsets))
            b_here = w.at(b, w.build.load(w.build.gep(offsets, [number(1)])))
            a_rows = [w.at(a_here, w.times(m, a_row)) for m in range(rows)]

            def products(i: ir.Value, sums: Values) -> Values:
                b_row, column = w.at(b_here, w.build.mul(i, b_k)), w.build.mul(i, a_k)
                right = [w.load(w.at(b_row, v * WIDTH), mask) for v in range(vectors)]
                for m, a_pointer in enumerate(a_rows):
                    left = w.spread(w.build.load(w.at(a_pointer, column)))
                    for v in range(vectors):
                        sums[m * vectors + v] = w.multiply_add(
                            left, right[v], sums[m * vectors + v]
                        )
                return sums

            return w.loop(number(0), k, 1, sums, products)

        return w.loop(number(0), block_count, 1, [ZERO] * (rows * vectors), block)

    def tile(i: ir.Value, _: Values) -> Values:
        sums = sums_of(w.at(a, w.build.mul(i, a_tile)), w.at(b, w.build.mul(i, b_tile)))
        c_here, bias_here = w.at(c, w.build.mul(i, c_tile)), w.at(bias, w.build.mul(i, b_tile))
        places = [
            w.at(w.at(c_here, w.times(m, c_row)), v * WIDTH)
            for m in range(rows)
            for v in range(vectors)
        ]

        def store() -> None:
            for x, place in zip(sums, places, strict=True):
                w.store(w.build.fmul(alphas, x), place, mask)

        def add() -> None:
            for x, place in zip(sums, places, strict=True):
                w.store(w.build.fadd(x, w.load(place, mask)), place, mask)

        def add_scaled() -> None:
            for x, place in zip(sums, places, strict=True):
                w.store(w.multiply_add(alphas, x, w.load(place, mask)), place, mask)

        def activate() -> None:
            biases = [w.load(w.at(bias_here, v * WIDTH), mask) for v in range(vectors)] * rows
            for x, place, offset in zip(sums, places, biases, strict=True):
                w.store(w.above(floors, w.build.fadd(x, offset)), place, mask)

        w.cases(kind, [store, add, add_scaled, activate])
        return []

    w.loop(number(0), tiles, 1, [], tile)
    w.build.ret_void()
    return w.function


def _write_outer(module: ir.Module) -> None:
    """rows, vectors, then the arguments of a tile: all shapes behind one name."""
    w = Writer(module, OUTER, [INT, INT, *_OUTER_ARGUMENTS])
    rows, vectors, *passed = w.function.args
    masked = w.build.icmp_signed("<", passed[1], number(WIDTH))
    key = w.build.add(w.times(MOST_VECTORS + 1, rows), vectors)
    key = w.build.select(masked, w.times(MOST_VECTORS + 1, rows), key)
    tiles = {}
    for v in range(1, MOST_VECTORS + 1):
        for r in range(1, outer_rows(v) + 1):
            tiles[r * (MOST_VECTORS + 1) + v] = _outer(module, r, v, masked=False)
    for r in range(1, outer_rows(1) + 1):
        tiles[r * (MOST_VECTORS + 1)] = _outer(module, r, 1, masked=True)
    w.calls(key, tiles, passed)
    w.build.ret_void()


# --- dot ------------------------------------------------------------------------------------------

# tiles; a, steps of a: tile, row; b, step: column; c, steps: tile, row; k, alpha, beta
_DOT_ARGUMENTS = [INT, POINTER, INT, INT, POINTER, INT, POINTER, INT, INT, INT, FLOAT, INT]


def _dot(module: ir.Module, rows: int, columns: int) -> ir.Function:
    """The function of one tile shape."""
    w = Writer(module, f"dot_{rows}x{columns}", _DOT_ARGUMENTS)
    tiles, a, a_tile, a_row, b, b_column, c, c_tile, c_row, k, alpha, beta = w.function.args
    alphas, whole = w.spread(alpha), w.build.and_(k, number(-WIDTH))
    some = w.build.icmp_signed("<", whole, k)
    rest = w.first(w.build.sub(k, whole))
    b_rows = [w.at(b, w.times(n, b_column)) for n in range(columns)]
    ahead = w.times(columns, b_column)

    def tile(i: ir.Value, _: Values) -> Values:
        a_here, c_here = w.at(a, w.build.mul(i, a_tile)), w.at(c, w.build.mul(i, c_tile))
        a_rows = [w.at(a_here, w.times(m, a_row)) for m in range(rows)]

        def products(i: ir.Value, sums: Values, mask: ir.Value | None = None) -> Values:
            right = [w.load(w.at(b_row, i), mask) for b_row in b_rows]
            for m, a_pointer in enumerate(a_rows):
                left = w.load(w.at(a_pointer, i), mask)
                for n in range(columns):
                    sums[m * columns + n] = w.multiply_add(left, right[n], sums[m * columns + n])
            return sums

        def whole_products(i: ir.Value, sums: Values) -> Values:
            for b_row in b_rows:  # what the next tiles read: B comes from far, A is near
                w.prefetch(w.at(w.at(b_row, i), ahead))
            return products(i, sums)

        sums = w.loop(number(0), whole, WIDTH, [ZERO] * (rows * columns), whole_products)
        stop = w.build.select(some, k, whole)
        sums = w.loop(whole, stop, WIDTH, sums, lambda i, sums: products(i, sums, rest))
        _store_pieces(w, sums, columns, c_here, c_row, alphas, beta)
        return []

    w.loop(number(0), tiles, 1, [], tile)
    w.build.ret_void()
    return w.function


def _store_pieces(
    w: Writer,
    sums: Values,
    columns: int,
    c: ir.Value,
    c_row: ir.Value,
    alphas: ir.Value,
    beta: ir.Value,
) -> None:
    """Add up `sums` and store them as rows of `columns` floats."""
    pieces = []
    for start in range(0, len(sums), WIDTH):
        group = sums[start : start + WIDTH]
        full = w.sums(group + [ZERO] * (WIDTH - len(group)))
        scaled = w.build.fmul(alphas, full)
        pieces += [
            w.build.shuffle_vector(scaled, scaled, picks(range(j, j + columns)))
            for j in range(0, len(group), columns)
        ]
    kind = pieces[0].type.as_pointer()
    places = [w.build.bitcast(w.at(c, w.times(m, c_row)), kind) for m in range(len(pieces))]

    def store() -> None:
        for piece, place in zip(pieces, places, strict=True):
            w.build.store(piece, place).align = 4

    def add() -> None:
        for piece, place in zip(pieces, places, strict=True):
            old = w.build.load(place)
            old.align = 4
            w.build.store(w.build.fadd(piece, old), place).align = 4

    w.cases(beta, [store, add])


def _write_dot(module: ir.Module) -> None:
    """rows, columns, then the arguments of a tile: all shapes behind one name."""
    w = Writer(module, DOT, [INT, INT, *_DOT_ARGUMENTS])
    rows, columns, *passed = w.function.args
    tiles = {
        r * (MOST_ROWS + 1) + n: _dot(module, r, n)
        for r in range(1, MOST_ROWS + 1)
        for n in sorted({1, dot_columns(r)})
    }
    w.calls(w.build.add(w.times(MOST_ROWS + 1, rows), columns), tiles, passed)
    w.build.ret_void()


# --- transpose ------------------------------------------------------------------------------------


# rows, columns of A; a, its step by row; c, its step by row; beta
_TRANSPOSE_ARGUMENTS = [INT, INT, POINTER, INT, POINTER, INT, INT]


def _write_transpose(module: ir.Module) -> None:
    """A square or a part of one."""
    w = Writer(module, TRANSPOSE, _TRANSPOSE_ARGUMENTS)
    rows, columns, a, a_row, c, c_row, beta = w.function.args
    reads = [w.at(a, w.times(m, a_row)) for m in range(WIDTH)]
    writes = [w.at(c, w.times(m, c_row)) for m in range(WIDTH)]

    def whole() -> None:
        for row, place in zip(w.transposed([w.load(read) for read in reads]), writes, strict=True):
            w.store(row, place)

    def partly(add: bool) -> None:
        across, down = w.first(columns), w.first(rows)
        loaded = [
            w.load(read, w.both(across, w.build.icmp_signed("<", number(m), rows)))
            for m, read in enumerate(reads)
        ]
        for m, (row, place) in enumerate(zip(w.transposed(loaded), writes, strict=True)):
            mask = w.both(down, w.build.icmp_signed("<", number(m), columns))
            w.store(w.build.fadd(row, w.load(place, mask)) if add else row, place, mask)

    full = w.build.icmp_signed("==", w.build.add(rows, columns), number(2 * WIDTH))
    key = w.build.select(full, w.times(2, beta), w.build.add(number(1), beta))
    w.cases(key, [whole, lambda: partly(False), lambda: partly(True)])
    w.build.ret_void()


# --- as Numba sees them ---------------------------------------------------------------------------


def _write(module: ir.Module) -> list[str]:
    _write_outer(module)
    _write_dot(module)
    _write_transpose(module)
    return [OUTER, DOT, TRANSPOSE]


if not config.DISABLE_JIT:
    library.load("brgemm", _write)

_WHOLE = types.intp


def _matrix(builder, value):
    """A `Matrix` in generated code: pointer, down, across."""
    address, down, across = cgutils.unpack_tuple(builder, value)
    return builder.inttoptr(address, POINTER), down, across


def _call(context, builder, name, arguments):
    """Call a function of the library, which the linker finds by name."""
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
    return context.get_dummy_value()


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
        return _call(context, builder, OUTER, passed)

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
        return _call(context, builder, DOT, passed)

    return types.void(*[_WHOLE] * 4, a, b, c, types.float64, _WHOLE), generate


@intrinsic
def transpose_square(typing, rows, columns, a, c, beta):
    """C[columns, rows] = A[rows, columns].T + beta C, both at most WIDTH, with across = 1."""

    def generate(context, builder, signature, arguments):
        rows, columns, a, c, beta = arguments
        a, a_down, _ = _matrix(builder, a)
        c, c_down, _ = _matrix(builder, c)
        passed = [rows, columns, a, a_down, c, c_down, beta]
        return _call(context, builder, TRANSPOSE, passed)

    return types.void(_WHOLE, _WHOLE, a, c, _WHOLE), generate


# --- without the JIT ------------------------------------------------------------------------------


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
