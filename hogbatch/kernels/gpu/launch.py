"""Launching of CUDA kernels compiled from `sources`."""

from functools import cache
from typing import Any

import cupy
import numpy as np

from hogbatch.kernels.contract import VELOCITY, Hyper
from hogbatch.kernels.gpu.sources import BFLOAT16_SOURCES, SOURCES

THREADS = 256  # per block; BLOCK in the CUDA sources
WARP = 32  # threads that run together; LANES in the CUDA sources
_MAX_BLOCKS = 8192  # of a grid-stride launch: several times what any device runs concurrently
LINK_THREADS = 1024  # per block of `over_link`; LINK_BLOCK in replica.cu
_LINK_BLOCKS = 2  # enough to keep the link busy
RESIDENT_BLOCKS = 8  # of THREADS that one multiprocessor can run concurrently


def kernel(source: str, name: str, operands: cupy.ndarray | None = None) -> cupy.RawKernel:
    """The function `name` of a source, for the type of `operands`, else for float32.

    It is compiled at its first call and cached on disk.
    """
    return _kernel(source, name, "float32" if operands is None else operands.dtype.name)


@cache
def _kernel(source: str, name: str, dtype: str) -> cupy.RawKernel:
    sources = BFLOAT16_SOURCES if dtype == "uint16" else SOURCES
    return cupy.RawKernel(sources[source], name)


def over_cells(function: cupy.RawKernel, count: int, *arguments: object) -> None:
    """Launch with about one thread per cell; does nothing without cells."""
    if count > 0:
        blocks = min(-(-count // THREADS), _MAX_BLOCKS)
        function((blocks,), (THREADS,), arguments)


def over_link(function: cupy.RawKernel, columns: int, *arguments: object) -> None:
    """Launch for rows of `columns` cells in memory of the host, beside other work of the device.

    Threads of a block: x, columns, a power of two; y, rows.

    Blocks that wait for the link keep others from running on their multiprocessor. A product often
    has as many blocks as there are multiprocessors, so a few that are blocked can double its time.
    """
    across = min(1 << (columns - 1).bit_length(), LINK_THREADS)
    function((_LINK_BLOCKS,), (across, LINK_THREADS // across), arguments)


def over_touched(function: cupy.RawKernel, room: int, width: int, *arguments: object) -> None:
    """Launch for the rows in a list with `room` entries, whose length only the device knows.

    A block has about one thread per cell of some rows of `width` columns: EACH_TOUCHED in
    common.cuh. There are no more blocks than run concurrently, because most lists are short.
    """
    if room > 0:
        columns = columns_of_a_block(width)
        rows = THREADS // columns
        blocks = min(-(-room // rows), RESIDENT_BLOCKS * multiprocessors())
        function((blocks,), (columns, rows), arguments)


def over_batch(function: cupy.RawKernel, rows: int, width: int, *arguments: object) -> None:
    """Launch with one thread per cell of [rows, width], and at least one warp per row.

    Threads of a block: x, columns; y, parts of a row that has fewer columns than a warp has
    threads; z, rows. Blocks of the grid: x, rows; y, columns. Does nothing without rows.
    """
    if rows > 0:
        columns = columns_of_a_block(width)
        parts = max(1, WARP // columns)
        members = THREADS // (columns * parts)
        grid = -(-rows // members), -(-width // columns)
        function(grid, (columns, parts, members), arguments)


def columns_of_a_block(width: int) -> int:
    """A power of two: `width` or more, if a block has that many threads."""
    return min(1 << (width - 1).bit_length(), THREADS)


def multiprocessors() -> int:
    """The number of multiprocessors of the current device."""
    return _multiprocessors(cupy.cuda.runtime.getDevice())


@cache
def _multiprocessors(device: int) -> int:
    runtime = cupy.cuda.runtime
    return int(runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, device))


def over_rows(function: cupy.RawKernel, rows: int, width: int, *arguments: object) -> None:
    """Launch with one block per row and about one thread per column; does nothing without rows."""
    if rows > 0:
        threads = min(max(32, 1 << (width - 1).bit_length()), THREADS)
        function((rows,), (threads,), arguments)


def rate_of(hyper: Hyper) -> cupy.ndarray:
    """The learning rate as an array [1] on the device, from which kernels read it."""
    rate = hyper.rate
    return rate if isinstance(rate, cupy.ndarray) else cupy.asarray([rate], np.float64)


def optimizer_arguments(kind: int, hyper: Hyper) -> tuple[Any, ...]:
    """The arguments of kernels that make a step of the optimizer `kind`."""
    constants = hyper.l2, hyper.momentum, hyper.beta2, hyper.epsilon
    return kind, rate_of(hyper), *map(float, constants)


def gradient_repetitions(kind: int, hyper: Hyper) -> float:
    """The number of times that a gradient is added: 1 / (1 - momentum) with momentum, else 1."""
    return 1 / (1 - hyper.momentum) if kind in VELOCITY else 1.0
