"""Offsets of the arrays in a segment and of the tensors in a model; arithmetic only."""

from collections.abc import Iterable, Iterator, Mapping
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
    dtype: str  # a NumPy dtype string: "<f4", "int64"
    shape: Shape
    offset: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the array."""
        return self.offset + prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Layout:
    """The arrays of one segment of `size` bytes, in order of offset."""

    fields: tuple[Field, ...]
    size: int


def arrange(*groups: Mapping[str, tuple[str, Shape]]) -> Layout:
    """Lay out groups of arrays, given as name: (dtype, shape), one after another.

    Every array starts on a new cache line, every group on a new page: pages are locked and
    registered with a GPU as a whole, and a copy must not span memory of which only a part is
    registered. The size is a whole number of pages, at least one, so that a segment of empty arrays
    can be mapped too.
    """
    fields: list[Field] = []
    end = 0
    for group in groups:
        end = _round_up(end, PAGE)
        for name, (dtype, shape) in group.items():
            fields.append(Field(name, dtype, shape, _round_up(end, LINE)))
            end = fields[-1].end
    return Layout(tuple(fields), max(PAGE, _round_up(end, PAGE)))


def stripes(size: int, parts: int) -> list[list[tuple[int, int]]]:
    """Distribute [0, size) over `parts` in turn, in stripes of 2 MiB.

    Returns the (offset, length) pairs of each part.
    """
    by_part: list[list[tuple[int, int]]] = [[] for _ in range(parts)]
    for number, offset in enumerate(range(0, size, HUGE_PAGE)):
        by_part[number % parts].append((offset, min(HUGE_PAGE, size - offset)))
    return by_part


def stored_width(width: int) -> int:
    """Number of columns stored for `width` columns (at least 1), so that SIMD needs no remainder.

    A multiple of 16 for widths from 16 on, below that the next power of two: 1, 2, 4, 8, 16.
    """
    if width < 1:
        raise ValueError(f"expected a width of at least 1; got {width}")
    return _round_up(width, LANES) if width >= LANES else 1 << (width - 1).bit_length()


def tensor_offsets(shapes: Iterable[Shape]) -> tuple[tuple[int, ...], int]:
    """Pack float32 tensors into one flat array; return their offsets and the total length.

    Both count floats. Every tensor starts on a cache line if the flat array does, and the length
    is a whole number of cache lines.
    """
    offsets: list[int] = []
    end = 0
    for shape in shapes:
        offsets.append(end)
        end = _round_up(end + prod(shape), LANES)
    return tuple(offsets), end


def chunks(length: int, size: int) -> Iterator[slice]:
    """Divide [0, length) into slices of `size`, the last of which may end beyond it."""
    return (slice(start, start + size) for start in range(0, length, size))


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
