"""Writing the safetensors format piece by piece, without a copy of all tensors.

A file consists of the length of its header (a little-endian uint64), the header (JSON), and the
tensors.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

PIECE: Final = 1 << 20  # bytes of a piece, unless a row of the array is larger
DTYPES: Final = {  # names in safetensors
    "bool": "BOOL",
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    "complex64": "C64",
}


def in_file_order(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Sort tensors into file order: the widest dtypes first, so that all tensors are aligned.

    Arrays that are not little-endian are copied.
    """
    tensors = {
        name: np.asarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()
    }
    return dict(sorted(tensors.items(), key=lambda each: -each[1].dtype.itemsize))


def header(tensors: Arrays, metadata: Mapping[str, str] | None = None) -> bytes:
    """The header, preceded by its length, for `tensors` sorted by :func:`in_file_order`.

    TypeError for a dtype that safetensors does not support.
    """
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    stop = 0
    for name, array in tensors.items():
        if array.dtype.name not in DTYPES:
            raise TypeError(
                f"tensor {name}: expected one of {', '.join(DTYPES)}; got {array.dtype}"
            )
        start, stop = stop, stop + array.nbytes
        dtype = DTYPES[array.dtype.name]
        entries[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [start, stop]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # aligns the tensors
    return len(text).to_bytes(8, "little") + text


def pieces(array: NDArray[Any]) -> Iterator[bytes]:
    """Yield copies of the bytes of `array` in C order, about PIECE bytes at a time.

    Because of the copies, the checksum matches the written bytes if the array changes meanwhile.
    """
    if array.flags.c_contiguous:
        array = array.reshape(-1)
    step = max(1, PIECE // max(1, array.nbytes // max(1, len(array))))
    for start in range(0, len(array), step):
        yield array[start : start + step].tobytes()


def crc32_of(array: NDArray[Any]) -> int:
    """The CRC-32 of the bytes of `array` in C order."""
    checksum = 0
    for piece in pieces(array):
        checksum = zlib.crc32(piece, checksum)
    return checksum
