"""Micro-kernels of matrix products, which hold a tile of C in registers.

    outer       C[m, n] from one A[m, k] and B[k, n] or a sum over several: vectors along n, one
                element of A at a time
    dot         C[m, n] from A[m, k] and B[n, k]: vectors along k, summed at the end
    transpose   one block of up to WIDTH x WIDTH

A function is generated for each tile shape. A dispatch function selects the shape at run time; it
`kernels.cpu.brgemm` calls it. One call computes a sequence of tiles, so that the processor can
start a tile while it still stores the previous one. See Georganas et al. 2020, algorithms 1 and 2.
"""

from typing import Final, NamedTuple

from llvmlite import ir

from hogbatch.kernels.cpu import library
from hogbatch.kernels.cpu.simd import (
    FLOAT,
    INT,
    POINTER,
    REGISTERS,
    WIDTH,
    ZERO,
    FunctionBuilder,
    Values,
    number,
    shuffle_mask,
)

# Kinds of epilogue: how C is updated from a tile's sum of products S.
STORE: Final = 0  # C = S
ADD: Final = 1  # C += S
ACTIVATE: Final = 2  # C = max(floor, S + bias[n])

# Function names in the library.
OUTER: Final = f"hogbatch_outer_{WIDTH}"
DOT: Final = f"hogbatch_dot_{WIDTH}"
TRANSPOSE: Final = f"hogbatch_transpose_{WIDTH}"

MAX_ROWS: Final = 8
MAX_VECTORS: Final = 4
MAX_ACCUMULATORS: Final = 24 if REGISTERS == 32 else 12  # the other registers hold operands


class Matrix(NamedTuple):
    """Element [i, j] is the float32 at address + 4 (i * row_stride + j * column_stride).

    An address instead of an array, because Numba updates a reference count whenever an array is
    passed to a function. The creator of a Matrix must keep its array alive.
    """

    address: int
    row_stride: int
    column_stride: int


class Epilogue(NamedTuple):
    """The update of C from a sum of products S."""

    kind: int  # STORE, ADD, ...
    bias: int  # address
    floor: float


def outer_rows(vectors: int) -> int:
    """Maximum number of rows of an outer tile that is `vectors` vectors wide."""
    return min(MAX_ROWS, MAX_ACCUMULATORS // vectors)


def dot_columns(rows: int) -> int:
    """Number of columns of a dot tile with `rows` rows: a power of two."""
    return 1 << (min(MAX_ROWS, WIDTH, MAX_ACCUMULATORS // rows).bit_length() - 1)


# --- outer ----------------------------------------------------------------------------------------

_OUTER_ARGUMENTS = [
    *(INT, INT),  # tiles, lanes
    *(POINTER, INT, INT, INT, INT),  # a, its strides by tile, row, k, term
    *(POINTER, INT, INT, INT),  # b, its strides by tile, k, term
    *(POINTER, INT, INT, INT, INT),  # c, its strides by tile, row; k; terms
    *(INT, POINTER, FLOAT),  # epilogue: kind, bias, floor
]


def _outer(module: ir.Module, rows: int, vectors: int, masked: bool) -> ir.Function:
    """Generate the function of one tile shape; with `masked` only `lanes` of its lanes are used."""
    w = FunctionBuilder(
        module, f"outer_{rows}x{vectors}{'_masked' if masked else ''}", _OUTER_ARGUMENTS
    )
    tiles, lanes, a, a_tile, a_row, a_k, a_term, b, b_tile, b_k, b_term = w.function.args[:11]
    c, c_tile, c_row, k, terms, kind, bias, floor = w.function.args[11:]
    mask, floors = w.lane_mask(lanes) if masked else None, w.broadcast(floor)

    def add_product(a: ir.Value, b: ir.Value, sums: Values) -> Values:
        a_rows = [w.at(a, w.times(m, a_row)) for m in range(rows)]

        def products(i: ir.Value, sums: Values) -> Values:
            b_row, column = w.at(b, w.build.mul(i, b_k)), w.build.mul(i, a_k)
            right = [w.load(w.at(b_row, v * WIDTH), mask) for v in range(vectors)]
            for m, a_pointer in enumerate(a_rows):
                left = w.broadcast(w.build.load(w.at(a_pointer, column)))
                for v in range(vectors):
                    sums[m * vectors + v] = w.multiply_add(left, right[v], sums[m * vectors + v])
            return sums

        return w.loop(number(0), k, 1, sums, products)

    def tile(i: ir.Value, _: Values) -> Values:
        a_here, b_here = w.at(a, w.build.mul(i, a_tile)), w.at(b, w.build.mul(i, b_tile))

        def add_term(n: ir.Value, sums: Values) -> Values:
            left, right = w.at(a_here, w.build.mul(n, a_term)), w.at(b_here, w.build.mul(n, b_term))
            return add_product(left, right, sums)

        sums = w.loop(number(0), terms, 1, [ZERO] * (rows * vectors), add_term)
        c_here, bias_here = w.at(c, w.build.mul(i, c_tile)), w.at(bias, w.build.mul(i, b_tile))
        targets = [
            w.at(w.at(c_here, w.times(m, c_row)), v * WIDTH)
            for m in range(rows)
            for v in range(vectors)
        ]
        _apply_epilogue(w, (kind, bias_here, floors), sums, targets, vectors, mask)
        return []

    w.loop(number(0), tiles, 1, [], tile)
    w.build.ret_void()
    return w.function


def _apply_epilogue(
    w: FunctionBuilder,
    epilogue: tuple[ir.Value, ir.Value, ir.Value],
    sums: Values,
    targets: Values,
    vectors: int,
    mask: ir.Value | None,
) -> None:
    """Store the sums of a tile, row by row, with an `epilogue` of (kind, bias, floors)."""
    kind, bias, floors = epilogue

    def store() -> None:
        for x, target in zip(sums, targets, strict=True):
            w.store(x, target, mask)

    def add() -> None:
        for x, target in zip(sums, targets, strict=True):
            w.store(w.build.fadd(x, w.load(target, mask)), target, mask)

    def activate() -> None:
        biases = [w.load(w.at(bias, v * WIDTH), mask) for v in range(vectors)]
        rows = len(sums) // vectors
        for x, target, offset in zip(sums, targets, biases * rows, strict=True):
            w.store(w.maximum(floors, w.build.fadd(x, offset)), target, mask)

    w.switch(kind, {STORE: store, ADD: add, ACTIVATE: activate})


def _write_outer(module: ir.Module) -> None:
    """Generate the dispatch function of all outer tiles; arguments: rows, vectors, a tile's."""
    w = FunctionBuilder(module, OUTER, [INT, INT, *_OUTER_ARGUMENTS])
    rows, vectors, *passed = w.function.args
    masked = w.build.icmp_signed("<", passed[1], number(WIDTH))
    key = w.build.add(w.times(MAX_VECTORS + 1, rows), vectors)
    key = w.build.select(masked, w.times(MAX_VECTORS + 1, rows), key)
    tiles = {}
    for v in range(1, MAX_VECTORS + 1):
        for r in range(1, outer_rows(v) + 1):
            tiles[r * (MAX_VECTORS + 1) + v] = _outer(module, r, v, masked=False)
    for r in range(1, outer_rows(1) + 1):
        tiles[r * (MAX_VECTORS + 1)] = _outer(module, r, 1, masked=True)
    w.dispatch(key, tiles, passed)
    w.build.ret_void()


# --- dot ------------------------------------------------------------------------------------------

# tiles; a, its strides by tile, row; b, its stride by column; c, its strides by tile, row; k;
# whether C += instead of C =
_DOT_ARGUMENTS = [INT, POINTER, INT, INT, POINTER, INT, POINTER, INT, INT, INT, INT]


def _dot(module: ir.Module, rows: int, columns: int) -> ir.Function:
    """Generate the function of one tile shape."""
    w = FunctionBuilder(module, f"dot_{rows}x{columns}", _DOT_ARGUMENTS)
    tiles, a, a_tile, a_row, b, b_column, c, c_tile, c_row, k, adds = w.function.args
    whole = w.build.and_(k, number(-WIDTH))
    some = w.build.icmp_signed("<", whole, k)
    rest = w.lane_mask(w.build.sub(k, whole))
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

        def full_vectors(i: ir.Value, sums: Values) -> Values:
            for b_row in b_rows:  # for the next tiles: B is not in cache yet, A is
                w.prefetch(w.at(w.at(b_row, i), ahead))
            return products(i, sums)

        sums = w.loop(number(0), whole, WIDTH, [ZERO] * (rows * columns), full_vectors)
        stop = w.build.select(some, k, whole)
        sums = w.loop(whole, stop, WIDTH, sums, lambda i, sums: products(i, sums, rest))
        _store_pieces(w, sums, columns, c_here, c_row, adds)
        return []

    w.loop(number(0), tiles, 1, [], tile)
    w.build.ret_void()
    return w.function


def _store_pieces(
    w: FunctionBuilder, sums: Values, columns: int, c: ir.Value, c_row: ir.Value, adds: ir.Value
) -> None:
    """Sum each vector of `sums`; store the results as rows of `columns` floats, or add them."""
    pieces = []
    for start in range(0, len(sums), WIDTH):
        group = sums[start : start + WIDTH]
        full = w.horizontal_sums(group + [ZERO] * (WIDTH - len(group)))
        pieces += [
            w.build.shuffle_vector(full, full, shuffle_mask(range(j, j + columns)))
            for j in range(0, len(group), columns)
        ]
    kind = pieces[0].type.as_pointer()
    targets = [w.build.bitcast(w.at(c, w.times(m, c_row)), kind) for m in range(len(pieces))]

    def store() -> None:
        for piece, target in zip(pieces, targets, strict=True):
            w.build.store(piece, target, align=4)

    def add() -> None:
        for piece, target in zip(pieces, targets, strict=True):
            w.build.store(w.build.fadd(piece, w.build.load(target, align=4)), target, align=4)

    w.switch(adds, {0: store, 1: add})


def _write_dot(module: ir.Module) -> None:
    """Generate the dispatch function of all dot tiles; arguments: rows, columns, a tile's."""
    w = FunctionBuilder(module, DOT, [INT, INT, *_DOT_ARGUMENTS])
    rows, columns, *passed = w.function.args
    tiles = {
        r * (MAX_ROWS + 1) + n: _dot(module, r, n)
        for r in range(1, MAX_ROWS + 1)
        for n in sorted({1, dot_columns(r)})
    }
    w.dispatch(w.build.add(w.times(MAX_ROWS + 1, rows), columns), tiles, passed)
    w.build.ret_void()


# --- transpose ------------------------------------------------------------------------------------


# rows, columns of A; a, its stride by row; c, its stride by row
_TRANSPOSE_ARGUMENTS = [INT, INT, POINTER, INT, POINTER, INT]


def _write_transpose(module: ir.Module) -> None:
    """Generate the transposition of a block of up to WIDTH x WIDTH."""
    w = FunctionBuilder(module, TRANSPOSE, _TRANSPOSE_ARGUMENTS)
    rows, columns, a, a_row, c, c_row = w.function.args
    reads = [w.at(a, w.times(m, a_row)) for m in range(WIDTH)]
    writes = [w.at(c, w.times(m, c_row)) for m in range(WIDTH)]

    def whole() -> None:
        for row, target in zip(w.transpose([w.load(read) for read in reads]), writes, strict=True):
            w.store(row, target)

    def partly() -> None:
        across, down = w.lane_mask(columns), w.lane_mask(rows)
        loaded = [
            w.load(read, w.mask_if(across, w.build.icmp_signed("<", number(m), rows)))
            for m, read in enumerate(reads)
        ]
        for m, (row, target) in enumerate(zip(w.transpose(loaded), writes, strict=True)):
            mask = w.mask_if(down, w.build.icmp_signed("<", number(m), columns))
            w.store(row, target, mask)

    full = w.build.icmp_signed("==", w.build.add(rows, columns), number(2 * WIDTH))
    w.switch(w.build.select(full, number(1), number(0)), {1: whole, 0: partly})
    w.build.ret_void()


def write(module: ir.Module) -> list[str]:
    """Add all micro-kernels to `module`; return the names of the functions to call."""
    _write_outer(module)
    _write_dot(module)
    _write_transpose(module)
    return [OUTER, DOT, TRANSPOSE]


library.load("brgemm", write)
# Kernels call these; see the lists of their arguments.
outer = library.function(OUTER, [INT, INT, *_OUTER_ARGUMENTS])
dot = library.function(DOT, [INT, INT, *_DOT_ARGUMENTS])
transpose_block = library.function(TRANSPOSE, _TRANSPOSE_ARGUMENTS)
