"""Matrix products by cuBLAS, called through its C interface.

CuPy's own products refuse to run while a CUDA graph is recorded (cupy/cupy#6290), and a step
without a graph takes as long as its launches. So the library that CuPy has loaded is called
directly; five functions are enough.
"""

import ctypes

import cupy
import numpy as np
from cuda import pathfinder

from hogbatch.errors import DeviceError

# cublasComputeType_t: what operands are rounded to; sums are float32 in any case.
COMPUTE = {"float32": 68, "tf32": 77, "bfloat16": 75}
WORKSPACE = 32 << 20  # bytes, as NVIDIA advises for Hopper; more than any product of ours needs

_FLOAT32 = 0  # CUDA_R_32F
_AS_IT_IS, _TRANSPOSED = 0, 1  # cublasOperation_t
_DEFAULT_ALGORITHM = -1


class Cublas:
    """A handle with a workspace of its own; for one thread, on whatever stream that is."""

    def __init__(self, precision: str) -> None:
        self._compute = COMPUTE[precision]
        try:
            self._library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
        except (OSError, RuntimeError) as missing:  # pathfinder's errors are RuntimeErrors
            raise DeviceError(f"cuBLAS cannot be loaded: {missing}") from missing
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        # Its own would be allocated anew by every graph that is recorded.
        self._workspace = cupy.empty(WORKSPACE, np.uint8)
        self._stream: int | None = None

    def multiply(self, a, b, out, transpose_a=False, transpose_b=False, fraction=1.0, add=False):
        """out[M, N] = share * op(a) @ op(b), or what is added to it; op transposes where asked to.

        All are C-contiguous float32.
        """
        alpha, beta = ctypes.c_float(fraction), ctypes.c_float(add)
        rows, columns = out.shape
        inner = a.shape[0] if transpose_a else a.shape[1]
        self._follow_stream()
        # cuBLAS stores by columns: it sees every array transposed, so it is asked for out.T
        self._call(
            "cublasGemmEx",
            *(self._handle, _operation(transpose_b), _operation(transpose_a)),
            *(columns, rows, inner, ctypes.byref(alpha)),
            *(_pointer(b), _FLOAT32, b.shape[1], _pointer(a), _FLOAT32, a.shape[1]),
            *(ctypes.byref(beta), _pointer(out), _FLOAT32, columns),
            *(self._compute, _DEFAULT_ALGORITHM),
        )

    def _follow_stream(self) -> None:
        stream = cupy.cuda.get_current_stream().ptr
        if stream != self._stream:
            self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream))
            workspace = _pointer(self._workspace)  # which a change of stream takes away
            self._call("cublasSetWorkspace_v2", self._handle, workspace, ctypes.c_size_t(WORKSPACE))
            self._stream = stream

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise DeviceError(f"{name} failed with cuBLAS status {status}")


def _operation(transposed: bool) -> int:
    return _TRANSPOSED if transposed else _AS_IT_IS


def _pointer(array: cupy.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data.ptr)
