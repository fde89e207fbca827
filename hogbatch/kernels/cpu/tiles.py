"""The micro-kernels of batch-reduce GEMM: tiles of C that stay in registers.

    outer       C[m, n] from A[m, k] and B[k, n]: vectors run along n, one element of A at a time
    dot         C[m, n] from A[m, k] and B[n, k]: vectors run along k, added up at the end
    transpose   one square

Each is written once for every tile shape, behind one function that picks the shape at run time
(`intrinsics` calls it). Each does a run of tiles in one call, so that the processor can begin a
tile while it still stores the one before. Sketches: Georganas et al. 2020, algorithms 1 and 2.
"""

from typing import Final, NamedTuple

from llvmlite import ir

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

MAX_ROWS: Final = 8
MAX_VECTORS: Final = 4
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
    return min(MAX_ROWS, IN_TILE // vectors)


def dot_columns(rows: int) -> int:
    """Columns of a dot tile of `rows` rows: a power of two."""
    return 1 << (min(MAX_ROWS, WIDTH, IN_TILE // rows).bit_length() - 1)


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
        _finish(w, (kind, alphas, bias_here, floors), sums, places, vectors, mask)
        return []

    w.loop(number(0), tiles, 1, [], tile)
    w.build.ret_void()
    return w.function


def _finish(
    w: Writer,
    finish: tuple[ir.Value, ir.Value, ir.Value, ir.Value],
    sums: Values,
    places: Values,
    vectors: int,
    mask: ir.Value | None,
) -> None:
    """Store the sums of a tile, row by row, as `finish` says: kind, alphas, bias, floors."""
    kind, alphas, bias, floors = finish

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
        biases = [w.load(w.at(bias, v * WIDTH), mask) for v in range(vectors)]
        rows = len(sums) // vectors
        for x, place, offset in zip(sums, places, biases * rows, strict=True):
            w.store(w.above(floors, w.build.fadd(x, offset)), place, mask)

    w.cases(kind, [store, add, add_scaled, activate])


def _write_outer(module: ir.Module) -> None:
    """rows, vectors, then the arguments of a tile: all shapes behind one name."""
    w = Writer(module, OUTER, [INT, INT, *_OUTER_ARGUMENTS])
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
        r * (MAX_ROWS + 1) + n: _dot(module, r, n)
        for r in range(1, MAX_ROWS + 1)
        for n in sorted({1, dot_columns(r)})
    }
    w.calls(w.build.add(w.times(MAX_ROWS + 1, rows), columns), tiles, passed)
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


def write(module: ir.Module) -> list[str]:
    """Write all micro-kernels; return the names to call them by."""
    _write_outer(module)
    _write_dot(module)
    _write_transpose(module)
    return [OUTER, DOT, TRANSPOSE]
