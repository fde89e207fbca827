"""Matrix products by cuBLAS, called through its C interface.

CuPy refuses matrix products while a CUDA graph is captured (cupy/cupy#6290), and without a graph
the launch overhead dominates a training step. So the library that CuPy has loaded is called
directly; five functions are sufficient.
"""

import ctypes

import cupy
import numpy as np
from cuda import pathfinder

from hogbatch.errors import DeviceError

# cublasComputeType_t: the type that operands are rounded to; sums are always float32. Operands of
# bfloat16 are stored in it.
COMPUTE_TYPES = {"float32": 68, "tf32": 77, "bfloat16": 68}
WORKSPACE_BYTES = 32 << 20  # NVIDIA's recommendation for Hopper; more than our products need
DATA_TYPES = {"float32": 0, "uint16": 14}  # cudaDataType_t by dtype; uint16 holds bfloat16
_NOT_TRANSPOSED, _TRANSPOSED = 0, 1  # cublasOperation_t
_DEFAULT_ALGORITHM = -1
ALLOCATION_FAILED = 3  # cublasStatus_t


class Cublas:
    """A cuBLAS handle with its own workspace, for one thread; uses the thread's current stream."""

    def __init__(self, precision: str) -> None:
        self._compute = COMPUTE_TYPES[precision]
        try:
            self._library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
        except (OSError, RuntimeError) as error:  # pathfinder raises RuntimeErrors
            raise DeviceError(f"cuBLAS cannot be loaded: {error}") from error
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        # cuBLAS would allocate a default workspace again for every captured graph.
        self.workspace = cupy.empty(WORKSPACE_BYTES, np.uint8)
        self._stream: int | None = None

    def multiply(self, a, b, out, transpose_a=False, transpose_b=False, fraction=1.0, add=False):
        """out[M, N] = fraction * op(a) @ op(b), plus out if `add`; op transposes if requested.

        All arrays are C-contiguous. a and b are both float32, or both bfloat16; `out` is either.
        """
        alpha, beta = ctypes.c_float(fraction), ctypes.c_float(add)
        rows, columns = out.shape
        inner = a.shape[0] if transpose_a else a.shape[1]
        self._use_current_stream()
        # cuBLAS is column-major and sees every array transposed, so it computes out.T.
        self._call(
            *("cublasGemmEx", self._handle, operation(transpose_b), operation(transpose_a)),
            *(columns, rows, inner, ctypes.byref(alpha)),
            *(pointer(b), DATA_TYPES[b.dtype.name], b.shape[1]),
            *(pointer(a), DATA_TYPES[a.dtype.name], a.shape[1], ctypes.byref(beta)),
            *(pointer(out), DATA_TYPES[out.dtype.name], columns),
            *(self._compute, _DEFAULT_ALGORITHM),
        )

    def _use_current_stream(self) -> None:
        stream = cupy.cuda.get_current_stream().ptr
        if stream != self._stream:
            self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream))
            workspace = pointer(self.workspace)  # cublasSetStream resets the workspace
            self._call(
                "cublasSetWorkspace_v2", self._handle, workspace, ctypes.c_size_t(WORKSPACE_BYTES)
            )
            self._stream = stream

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status == ALLOCATION_FAILED:
            raise MemoryError(f"{name}: cuBLAS could not allocate memory")
        if status != 0:
            raise DeviceError(f"{name} failed with cuBLAS status {status}")


def operation(transposed: bool) -> int:
    """The cublasOperation_t."""
    return _TRANSPOSED if transposed else _NOT_TRANSPOSED


def pointer(array: cupy.ndarray) -> ctypes.c_void_p:
    """The address of `array` as an argument."""
    return ctypes.c_void_p(array.data.ptr)
