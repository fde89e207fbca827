"""The matrix product called by cublasLtMatmul of source/cublaslt.cpp.

`refused` and `relu_keeps_nan` imitate what NVIDIA's documentation leaves open: which epilogues have
an algorithm, and what max(NaN, 0) is.
"""

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
DEFAULT, BIAS, RELU_BIAS, BGRADA, BGRADB = 1, 4, 6, 256, 512
_RELU = 2  # the bit of epilogues with a ReLU

refused: set[int] = set()  # epilogues without an algorithm
relu_keeps_nan = True

_int, _long, _float, _pointer = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


class _Call(ctypes.Structure):
    _fields_ = (
        ("stream", _pointer),
        *((name, _int) for name in ("transpose_a", "transpose_b", "type", "type_out")),
        *((name, _int) for name in ("compute", "epilogue")),
        *((name, _long) for name in ("m", "n", "k", "lda", "ldb", "ldc")),
        *((name, _float) for name in ("alpha", "beta")),
        *((name, _pointer) for name in ("a", "b", "c", "bias")),
    )


_Multiply = ctypes.CFUNCTYPE(_int, ctypes.POINTER(_Call))
_Supports = ctypes.CFUNCTYPE(_int, _int)


@cache
def library_path() -> Path:
    """The path of the shared library, in which the functions below have been registered."""
    path = _compile.library_path("cublaslt", (_compile.SOURCE / "cublaslt.cpp").read_text())
    ctypes.CDLL(str(path)).register_functions(_multiply, _supports)
    return path


@_Supports
def _supports(epilogue: int) -> int:
    return epilogue not in refused


@_Multiply
def _multiply(pointer) -> int:
    """Queue c[m, n] = epilogue(alpha op(a)[m, k] @ op(b)[k, n] + beta c), all by columns."""
    try:
        _enqueue(_copy(pointer.contents))
    except Exception:
        traceback.print_exc()
        return EXECUTION_FAILED
    return 0


def _copy(call: _Call) -> _Call:
    return _Call.from_buffer_copy(call)


def _enqueue(call: _Call) -> None:
    m, n, k = call.m, call.n, call.k
    a = matrix(call.a, *((k, m) if call.transpose_a else (m, k)), call.lda, call.type)
    b = matrix(call.b, *((n, k) if call.transpose_b else (k, n)), call.ldb, call.type)
    out = matrix(call.c, m, n, call.ldc, call.type_out)
    used = [a, b, out]
    vector = None
    if call.epilogue & (BIAS | BGRADA | BGRADB):
        length = n if call.epilogue == BGRADB else m
        vector = matrix(call.bias, length, 1, length, call.type_out)[:, 0]
        used.append(vector)
    keeps_nan = relu_keeps_nan

    @np.errstate(over="ignore", invalid="ignore")
    def run() -> None:
        left, right = (rounded(each, call.compute) for each in (a, b))
        left, right = left.T if call.transpose_a else left, right.T if call.transpose_b else right
        result = call.alpha * (left @ right)
        if call.beta:  # with 0, `out` may be NaN
            result += call.beta * exact(out)
        if call.epilogue & BIAS:
            result += exact(vector)[:, None]
        if call.epilogue & _RELU:
            negative = result < 0 if keeps_nan else ~(result > 0)
            result = np.where(negative, 0, result)
        if call.epilogue == BGRADA:
            write(left.sum(axis=1), vector)
        if call.epilogue == BGRADB:
            write(right.sum(axis=0), vector)
        write(result, out)

    regions = tuple(reachable(*extent(each)) for each in used if each.size)
    stream_at(call.stream or 0).enqueue(run, regions)


def rounded(operand: np.ndarray, kind: int) -> np.ndarray:
    """The operand rounded for compute type `kind`, in float64 so that the sums are exact."""
    numbers = exact(operand)
    if kind not in KEPT_BITS:
        return numbers
    mantissa, exponent = np.frexp(numbers)
    scale = 2.0 ** (KEPT_BITS[kind] + 1)
    return np.ldexp(np.rint(mantissa * scale) / scale, exponent)
