"""Where the arrays of a segment lie, and the tensors of a model: arithmetic alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

LINE = 64  # bytes of a cache line, and of the widest SIMD register
PAGE = 4096  # bytes
HUGE_PAGE = 2 << 20  # bytes, on x86-64 and on arm64 with pages of 4 KiB
LANES = LINE // 4  # float32 numbers in a line

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """One C-contiguous array, `offset` bytes into its segment."""

    name: str
    dtype: str  # as NumPy reads it: "<f4", "int64"
    shape: Shape
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array, without what pads it."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def end(self) -> int:
        """Offset of the first byte behind the array."""
        return self.offset + self.nbytes


@dataclass(frozen=True, slots=True)
class Layout:
    """The arrays of one segment of `size` bytes."""

    fields: tuple[Field, ...]
    size: int


def arrange(arrays: Mapping[str, tuple[str, Shape]]) -> Layout:
    """Lay out arrays, given as name: (dtype, shape), one behind the other.

    Every array starts on a cache line of its own; the size is a whole number of pages, at least
    one, so that even a segment of empty arrays can be mapped.
    """
    fields: list[Field] = []
    end = 0
    for name, (dtype, shape) in arrays.items():
        fields.append(Field(name, dtype, shape, _round_up(end, LINE)))
        end = fields[-1].end
    return Layout(tuple(fields), max(PAGE, _round_up(end, PAGE)))


def stripes(size: int, parts: int) -> list[list[tuple[int, int]]]:
    """Deal [0, size) out to `parts` in turn, in stripes of 2 MiB: each part's (offset, length)."""
    dealt: list[list[tuple[int, int]]] = [[] for _ in range(parts)]
    for number, offset in enumerate(range(0, size, HUGE_PAGE)):
        dealt[number % parts].append((offset, min(HUGE_PAGE, size - offset)))
    return dealt


def stored_width(width: int) -> int:
    """Columns to store for `width` real ones (at least 1), so that SIMD loads need no remainder.

    From 16 on a multiple of 16, below it the next power of two: 1, 2, 4, 8, 16.
    """
    if width < 1:
        raise ValueError(f"expected a width of at least 1; got {width}")
    return _round_up(width, LANES) if width >= LANES else 1 << (width - 1).bit_length()


def tensor_offsets(shapes: Iterable[Shape]) -> tuple[tuple[int, ...], int]:
    """Pack float32 tensors into one flat array: the offset of each, and the length of all.

    Both count floats. Every tensor starts on a cache line when the flat array does, and the
    length is a whole number of lines.
    """
    offsets: list[int] = []
    end = 0
    for shape in shapes:
        offsets.append(end)
        end = _round_up(end + prod(shape), LANES)
    return tuple(offsets), end


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
