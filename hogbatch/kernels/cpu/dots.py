"""Micro-kernels of linear models over CSR rows, where each feature has a single weight.

    dot_row         the score of one row
    prefetch_line   prefetches a cache line

Vector gather instructions take twice as long as loading the weights one by one.
"""

from typing import Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hogbatch.kernels.cpu import library
from hogbatch.kernels.cpu.simd import (
    BYTE,
    FLOAT,
    INT,
    INT32,
    POINTER,
    FunctionBuilder,
    Values,
    number,
)

DOT_ROW: Final = "hogbatch_dot_row"  # function name in the library
PREFETCH: Final = "llvm.prefetch.p0"

# indices, values, start, stop; weights, out
_DOT_ARGUMENTS = [INT32.as_pointer(), POINTER, INT, INT, POINTER, POINTER]
_SUMS = 4  # independent partial sums, to hide the latency of the additions


def _write(module: ir.Module) -> list[str]:
    """Generate out[0] += the sum of values[n] * weights[indices[n]] over n in start:stop."""
    w = FunctionBuilder(module, DOT_ROW, _DOT_ARGUMENTS)
    indices, values, start, stop, weights, out = w.function.args
    build = w.build

    def product(n: ir.Value) -> ir.Value:
        feature = build.zext(build.load(build.gep(indices, [n])), INT)
        return build.fmul(
            build.load(w.at(values, n)), build.load(w.at(weights, feature)), flags=["contract"]
        )

    def several(n: ir.Value, sums: Values) -> Values:
        return [
            build.fadd(total, product(build.add(n, number(k))), flags=["contract"])
            for k, total in enumerate(sums)
        ]

    def one(n: ir.Value, sums: Values) -> Values:
        return [build.fadd(sums[0], product(n), flags=["contract"]), *sums[1:]]

    whole = build.add(start, build.and_(build.sub(stop, start), number(-_SUMS)))
    zero = ir.Constant(FLOAT, 0.0)
    sums = w.loop(start, whole, _SUMS, [build.load(out), *[zero] * (_SUMS - 1)], several)
    a, b, c, d = w.loop(whole, stop, 1, sums, one)
    build.store(build.fadd(build.fadd(a, b), build.fadd(c, d)), out)
    build.ret_void()
    return [DOT_ROW]


library.load("linear", _write)


@intrinsic
def dot_row(typing, indices, values, start, stop, weights, out):
    """out[0] += X[b] @ weights, with X[b] stored in start:stop; arrays are passed as addresses."""

    def generate(context, builder, signature, arguments):
        library.call(builder, DOT_ROW, library.pointers(builder, arguments, _DOT_ARGUMENTS))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), generate


@intrinsic
def prefetch_line(typing, address):
    """Prefetch the cache line at `address`; invalid addresses are ignored."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], BYTE.as_pointer())
        hints = [ir.Constant(INT32, hint) for hint in (0, 3, 1)]  # read, near, data
        library.call(builder, PREFETCH, [pointer, *hints])
        return context.get_dummy_value()

    return types.void(types.intp), generate
