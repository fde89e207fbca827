"""The part of CuPy that hogbatch uses, on the host. See ../README.md."""

from typing import Any

import numpy as np

from cupy import cuda
from cupy._arrays import asarray, compute, ndarray
from cupy._kernel import RawKernel
from cupy._memory import pinned_pool, pool
from cupy._streams import get_current_stream

__version__ = "14.2.0"  # the version that is imitated
__all__ = ["RawKernel", "asarray", "cuda", "ndarray"]


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


def copyto(dst: ndarray, src: Any, casting: str = "same_kind") -> None:
    compute(np.copyto, dst, src, writes=dst, casting=casting)


def matmul(a: ndarray, b: ndarray, out: ndarray | None = None) -> ndarray:
    if get_current_stream().capture is not None:
        raise NotImplementedError(
            "calling cuBLAS API during stream capture is currently unsupported"
        )
    return compute(np.matmul, a, b, out=out)


def get_default_memory_pool() -> Any:
    return pool


def get_default_pinned_memory_pool() -> Any:
    return pinned_pool
