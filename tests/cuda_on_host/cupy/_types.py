"""The types of cuBLASLt's matrices: float32, and bfloat16 in arrays of uint16."""

import numpy as np

from cupy._memory import host_view

FLOAT32, BFLOAT16 = 0, 14  # cudaDataType_t
_DTYPES = {FLOAT32: np.dtype(np.float32), BFLOAT16: np.dtype(np.uint16)}


def matrix(address: int | None, rows: int, columns: int, leading: int, kind: int) -> np.ndarray:
    """A column-major matrix [rows, columns] whose leading dimension is `leading`."""
    dtype = _DTYPES[kind]
    strides = dtype.itemsize, dtype.itemsize * leading
    return host_view(address or 0, (rows, columns), dtype, strides)


def extent(array: np.ndarray) -> tuple[int, int]:
    """Address and bytes of an array with positive strides."""
    last = sum((count - 1) * by for count, by in zip(array.shape, array.strides, strict=True))
    return array.ctypes.data, last + array.itemsize


def exact(array: np.ndarray) -> np.ndarray:
    """The numbers as float64."""
    if array.dtype == np.float32:
        return array.astype(np.float64)
    return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def write(numbers: np.ndarray, out: np.ndarray) -> None:
    """out = numbers, rounded to the nearest; of two equally near ones to the even one."""
    single = numbers.astype(np.float32)
    if out.dtype == np.float32:
        out[...] = single
        return
    bits = single.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    out[...] = np.where(np.isnan(single), 0x7FC0, rounded)
