"""The micro-kernel of linear models over CSR rows, where each feature has a single weight.

Vector gather instructions take twice as long as loading the weights one by one.
"""

from typing import Final

from llvmlite import ir

from hogbatch.kernels.cpu import library
from hogbatch.kernels.cpu.simd import FLOAT, INT, INT32, POINTER, FunctionBuilder, Values, number

DOT_ROW: Final = "hogbatch_dot_row"  # function name in the library

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
dot_row = library.function(DOT_ROW, _DOT_ARGUMENTS)
