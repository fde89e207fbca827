"""The micro-kernels of a sparse input layer: a row of weights for each stored value.

    forward_rows    out[B, H] = X @ weights + bias, X the CSR inputs of a batch
    step_touched    the optimizer step on the rows of weights that the batch touches

Both work on a panel of up to MAX_VECTORS vectors of columns, whose sums stay in registers over
all stored values of a row of X, or over all occurrences of a feature. The next rows of weights are
known in advance and prefetched, because the hardware cannot predict them.
"""

from typing import Final

from llvmlite import ir

from hogbatch.config import optimizers
from hogbatch.kernels.contract import OPTIMIZERS
from hogbatch.kernels.cpu import library
from hogbatch.kernels.cpu.rules import traced
from hogbatch.kernels.cpu.simd import (
    FLOAT,
    INT,
    INT32,
    POINTER,
    WIDTH,
    ZERO,
    FunctionBuilder,
    Values,
    number,
)

# Names in the library.
FORWARD: Final = f"hogbatch_forward_rows_{WIDTH}"
STEP: Final = f"hogbatch_step_touched_{WIDTH}"

MAX_VECTORS: Final = 8
LINE: Final = 16  # floats in a cache line
FORWARD_AHEAD: Final = 96  # lines prefetched in `forward_rows`; measured
STEP_AHEAD: Final = 64  # lines prefetched of each array in `step_touched`; measured


def _lines(vectors: int) -> range:
    """The offsets of a panel's cache lines, in floats."""
    return range(0, vectors * WIDTH, LINE)


def _ahead(lines: int, vectors: int) -> int:
    """The number of rows of weights to prefetch, for `lines` cache lines in total."""
    return max(2, lines // len(_lines(vectors)))


# --- forward --------------------------------------------------------------------------------------

_FORWARD_ARGUMENTS = [
    *(INT, INT.as_pointer(), INT),  # lanes; rows, count
    *(INT.as_pointer(), INT32.as_pointer(), POINTER),  # indptr, indices, values
    # The panel's first column of weights, floats from one row to the next; bias, out, floor
    *(POINTER, INT, POINTER, POINTER, FLOAT),
]


def _forward(module: ir.Module, vectors: int, masked: bool) -> ir.Function:
    """The function for panels of `vectors` vectors; `masked`: of one vector, with fewer lanes."""
    w = FunctionBuilder(module, f"forward_rows_{0 if masked else vectors}", _FORWARD_ARGUMENTS)
    lanes, rows, count, indptr, indices, values, weights, width, bias, out, floor = w.function.args
    build, mask = w.build, w.lane_mask(lanes) if masked else None
    floors, last = w.broadcast(floor), build.sub(count, number(1))
    biases = [w.load(w.at(bias, v * WIDTH), mask) for v in range(vectors)]
    ahead = _ahead(FORWARD_AHEAD, vectors)

    def bounds(b: ir.Value) -> tuple[ir.Value, ir.Value]:
        pointer = build.gep(indptr, [build.load(build.gep(rows, [b]))])
        return build.load(pointer), build.load(build.gep(pointer, [number(1)]))

    def weights_of(n: ir.Value) -> ir.Value:
        feature = build.sext(build.load(build.gep(indices, [n])), INT)
        return w.at(weights, build.mul(feature, width))

    def row(b: ir.Value, _: Values) -> Values:
        start, stop = bounds(b)
        next_start, next_stop = bounds(_least(w, build.add(b, number(1)), last))
        some = build.icmp_signed("<", next_start, next_stop)  # else stay within this row
        onward = build.select(some, next_start, start)
        furthest = build.sub(build.select(some, next_stop, stop), number(1))

        def fetch(n: ir.Value, _: Values) -> Values:
            w.prefetch(build.gep(indices, [n]))
            w.prefetch(build.gep(values, [n]))
            return []

        w.loop(next_start, next_stop, LINE, [], fetch)

        def products(n: ir.Value, sums: Values) -> Values:
            later = build.add(n, number(ahead))
            beyond = build.sub(later, stop)
            there = _least(w, build.add(onward, beyond), furthest)
            inside = build.icmp_signed("<", beyond, number(0))
            later = weights_of(build.select(inside, later, there))
            for offset in _lines(vectors):
                w.prefetch(w.at(later, offset))
            value, here = w.broadcast(build.load(w.at(values, n))), weights_of(n)
            return [
                w.multiply_add(value, w.load(w.at(here, v * WIDTH), mask), total)
                for v, total in enumerate(sums)
            ]

        target = w.at(out, build.mul(b, width))
        for v, total in enumerate(w.loop(start, stop, 1, biases, products)):
            w.store(w.maximum(floors, total), w.at(target, v * WIDTH), mask)
        return []

    w.loop(number(0), count, 1, [], row)
    build.ret_void()
    return w.function


def _least(w: FunctionBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return w.build.select(w.build.icmp_signed("<", x, y), x, y)


# --- step -----------------------------------------------------------------------------------------

_STEP_ARGUMENTS = [
    *(INT, INT, INT32.as_pointer(), INT),  # lanes, reset; touched, count: see `contract.Links`
    *[INT32.as_pointer()] * 3,  # head, following, member
    *(INT.as_pointer(), POINTER),  # shifts, values: occurrence n of row b is values[shifts[b] + n]
    # The panel's first column of weights, first, second, grad; floats from one row to the next
    *(POINTER, POINTER, POINTER, POINTER, INT),
    *[FLOAT] * 6,  # rate, l2, momentum, fresh first, fresh second, epsilon
]
_SLOTS = {spec.kind: spec.slots for spec in optimizers.OPTIMIZERS.values()}


def _step(module: ir.Module, kind: int, vectors: int, masked: bool) -> ir.Function:
    """The function of one optimizer for panels of `vectors` vectors; `masked` as in `_forward`."""
    name = f"step_touched_{kind}_{0 if masked else vectors}"
    w = FunctionBuilder(module, name, _STEP_ARGUMENTS)
    lanes, reset, touched, count, head, following, member, shifts, values = w.function.args[:9]
    weights, first, second, grad, width = w.function.args[9:14]
    build, mask = w.build, w.lane_mask(lanes) if masked else None
    arrays = [weights, first, second][: 1 + _SLOTS[kind]]
    stepped = traced(w, kind, [w.broadcast(each) for each in w.function.args[14:]])
    ahead, last = _ahead(STEP_AHEAD, vectors), build.sub(count, number(1))
    resets = build.icmp_signed("!=", reset, number(0))

    def entry(pointer: ir.Value, index: ir.Value) -> ir.Value:
        return build.sext(build.load(build.gep(pointer, [index])), INT)

    def occurrence(carried: Values) -> tuple[Values, ir.Value]:
        n, *sums = carried
        row = entry(member, n)
        index = build.add(build.load(build.gep(shifts, [row])), n)
        value = w.broadcast(build.load(w.at(values, index)))
        grads = w.at(grad, build.mul(row, width))
        following_n = entry(following, n)
        sums = [
            w.multiply_add(value, w.load(w.at(grads, v * WIDTH), mask), total)
            for v, total in enumerate(sums)
        ]
        return [following_n, *sums], build.icmp_signed(">=", following_n, number(0))

    def feature(t: ir.Value, _: Values) -> Values:
        later = build.mul(entry(touched, _least(w, build.add(t, number(ahead)), last)), width)
        for array in arrays:
            for offset in _lines(vectors):
                w.prefetch(w.at(w.at(array, later), offset), write=True)
        here = entry(touched, t)
        begin = build.load(build.gep(head, [here]))
        build.store(build.select(resets, ir.Constant(INT32, -1), begin), build.gep(head, [here]))
        _, *sums = w.do_while([build.sext(begin, INT), *[ZERO] * vectors], occurrence)
        row = build.mul(here, width)
        for v, total in enumerate(sums):
            pointers = [w.at(w.at(array, row), v * WIDTH) for array in arrays]
            new = stepped(total, [w.load(pointer, mask) for pointer in pointers])
            for value, pointer in zip(new, pointers, strict=True):
                w.store(value, pointer, mask)
        return []

    w.loop(number(0), count, 1, [], feature)
    build.ret_void()
    return w.function


# --- all shapes behind one name -------------------------------------------------------------------


def _key(w: FunctionBuilder, vectors: ir.Value, lanes: ir.Value) -> ir.Value:
    """The key of a panel: its vectors, or 0 if only some lanes are used."""
    masked = w.build.icmp_signed("<", lanes, number(WIDTH))
    return w.build.select(masked, number(0), vectors)


def _write(module: ir.Module) -> list[str]:
    panels = range(MAX_VECTORS + 1)
    w = FunctionBuilder(module, FORWARD, [INT, *_FORWARD_ARGUMENTS])
    vectors, *passed = w.function.args
    functions = {v: _forward(module, max(v, 1), masked=v == 0) for v in panels}
    w.dispatch(_key(w, vectors, passed[0]), functions, passed)
    w.build.ret_void()

    w = FunctionBuilder(module, STEP, [INT, INT, *_STEP_ARGUMENTS])
    vectors, kind, *passed = w.function.args
    functions = {
        kind * len(panels) + v: _step(module, kind, max(v, 1), masked=v == 0)
        for kind in OPTIMIZERS.values()
        for v in panels
    }
    key = w.build.add(w.times(len(panels), kind), _key(w, vectors, passed[0]))
    w.dispatch(key, functions, passed)
    w.build.ret_void()
    return [FORWARD, STEP]


library.load("rows", _write)

# Kernels call these. If lanes < WIDTH, a panel has `lanes` columns, and `vectors` is 1.
#   forward_rows    one panel of out[B, width] = max(floor, X @ weights + bias); NaN is kept
#   step_touched    one panel of the step on all touched rows; `reset` 1: the heads become -1
forward_rows = library.function(FORWARD, [INT, *_FORWARD_ARGUMENTS])
step_touched = library.function(STEP, [INT, INT, *_STEP_ARGUMENTS])
