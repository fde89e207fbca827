"""The matrix product called by cublasGemmEx of source/cublas.cpp."""

import ctypes
import traceback
from functools import cache
from pathlib import Path

import numpy as np

from cupy import _compile
from cupy._memory import reachable
from cupy._streams import stream_at
from cupy._types import exact, extent, matrix, write

EXECUTION_FAILED = 13  # cublasStatus_t
KEPT_BITS = {75: 7, 77: 10}  # of the mantissa, by cublasComputeType_t: bfloat16, TF32
_integer, _number, _pointer = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
_Multiply = ctypes.CFUNCTYPE(
    _integer,
    *(_pointer, _integer, _integer, _integer, _integer, _integer),
    *(_number, _pointer, _integer, _pointer, _integer, _number, _pointer, _integer, _integer),
    *(_integer, _integer),
)


@cache
def library_path() -> Path:
    """The path of the shared library, in which `_multiply` has been registered."""
    path = _compile.library_path("cublas", (_compile.SOURCE / "cublas.cpp").read_text())
    ctypes.CDLL(str(path)).register_multiply(_multiply)
    return path


@_Multiply
def _multiply(
    stream, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, *types
):
    """Queue c[m, n] = alpha op(a)[m, k] @ op(b)[k, n] + beta c; all are column-major."""
    try:
        compute, kind, kind_c = types
        left = matrix(a, *((k, m) if transpose_a else (m, k)), lda, kind)
        right = matrix(b, *((n, k) if transpose_b else (k, n)), ldb, kind)
        out = matrix(c, m, n, ldc, kind_c)
        used = [each for each in (left, right, out) if each.size]
        left, right = left.T if transpose_a else left, right.T if transpose_b else right

        def run() -> None:
            product = alpha * (rounded(left, compute) @ rounded(right, compute))
            write(product + beta * exact(out) if beta else product, out)  # with 0, c may be NaN

        regions = tuple(reachable(*extent(each)) for each in used)
        stream_at(stream or 0).enqueue(run, regions)
    except Exception:
        traceback.print_exc()
        return EXECUTION_FAILED
    return 0


def rounded(operand: np.ndarray, kind: int) -> np.ndarray:
    """The operand rounded for compute type `kind`, in float64 so that the sums are exact."""
    numbers = exact(operand)
    if kind not in KEPT_BITS:
        return numbers
    mantissa, exponent = np.frexp(numbers)
    scale = 2.0 ** (KEPT_BITS[kind] + 1)
    return np.ldexp(np.rint(mantissa * scale) / scale, exponent)
