"""The part of CuPy that hogbatch uses, on the host. See ../README.md."""

from typing import Any

import numpy as np

from cupy import cuda
from cupy._arrays import asarray, compute, ndarray
from cupy._copies import MemoryPointer
from cupy._kernel import RawKernel
from cupy._memory import pool
from cupy._streams import get_current_stream

__version__ = "14.2.0"  # the version that is imitated
__all__ = ["MemoryPointer", "RawKernel", "asarray", "cuda", "ndarray"]

bool_, uint8, int32, int64 = np.bool_, np.uint8, np.int32, np.int64
float32, float64 = np.float32, np.float64


def empty(shape: Any, dtype: Any = float) -> ndarray:
    return ndarray(shape, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> ndarray:
    array = ndarray(shape, np.asarray(fill_value).dtype if dtype is None else dtype)
    array.fill(fill_value)
    return array


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = float) -> ndarray:
    return full(shape, 1, dtype)


def empty_like(prototype: ndarray, dtype: Any = None) -> ndarray:
    return ndarray(prototype.shape, dtype or prototype.dtype)


def zeros_like(a: ndarray, dtype: Any = None) -> ndarray:
    return zeros(a.shape, dtype or a.dtype)


def arange(*limits: Any, dtype: Any = None) -> ndarray:
    return asarray(np.arange(*limits, dtype=dtype))


def array(obj: Any, dtype: Any = None) -> ndarray:
    return obj.astype(dtype or obj.dtype) if isinstance(obj, ndarray) else asarray(obj, dtype)


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    whole = asarray(a, dtype)
    return whole if whole.flags.c_contiguous else whole.copy()


def asnumpy(a: Any) -> np.ndarray:
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def copyto(dst: ndarray, src: Any, casting: str = "same_kind") -> None:
    compute(np.copyto, dst, src, writes=dst, casting=casting)


def nan_to_num(x: ndarray, copy: bool = True, **instead: Any) -> ndarray:
    return compute(np.nan_to_num, x, copy=copy, writes=None if copy else x, **instead)


def matmul(a: ndarray, b: ndarray, out: ndarray | None = None) -> ndarray:
    if get_current_stream().is_capturing():
        raise NotImplementedError(
            "calling cuBLAS API during stream capture is currently unsupported"
        )
    return compute(np.matmul, a, b, out=out)


dot = matmul


def get_default_memory_pool() -> Any:
    return pool


def _as_numpy(name: str) -> Any:
    def function(*arguments: Any, **keywords: Any) -> Any:
        return compute(getattr(np, name), *arguments, **keywords)

    return function


for _name in (
    *("abs", "add", "divide", "equal", "exp", "isfinite", "isnan", "log", "maximum", "minimum"),
    *("multiply", "negative", "power", "sqrt", "square", "subtract", "tanh", "where"),
    *("all", "any", "argmax", "max", "mean", "min", "prod", "sum", "concatenate"),
):
    globals()[_name] = _as_numpy(_name)
