"""Digests of arrays, by which equal data are recognised."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BYTES: Final = 16


def of_arrays(description: str, arrays: Iterable[NDArray[Any]]) -> blake2b:
    """A digest of `description` and of the types, shapes and contents of `arrays`."""
    digest = blake2b(description.encode(), digest_size=BYTES)
    for array in arrays:
        digest.update(repr((array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest
