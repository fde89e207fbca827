"""How the CUDA sources become calls."""

import cupy
import numpy as np

from hogbatch.kernels.contract import VELOCITY, Hyper
from hogbatch.kernels.gpu.sources import SOURCES

THREADS = 256  # of a block; BLOCK in the sources
_MAX_BLOCKS = 8192  # of a grid-stride launch: several times what any device runs at once


def kernel(source: str, name: str) -> cupy.RawKernel:
    """The function `name` of SOURCES[source], compiled at its first call (cached on disk)."""
    return cupy.RawKernel(SOURCES[source], name)


def over_cells(function: cupy.RawKernel, count: int, *arguments: object) -> None:
    """Launch with about one thread a cell; nothing for no cells."""
    if count > 0:
        blocks = min(-(-count // THREADS), _MAX_BLOCKS)
        function((blocks,), (THREADS,), arguments)


def over_rows(function: cupy.RawKernel, rows: int, width: int, *arguments: object) -> None:
    """Launch with one block a row, of about one thread a column; nothing for no rows."""
    if rows > 0:
        threads = min(max(32, 1 << (width - 1).bit_length()), THREADS)
        function((rows,), (threads,), arguments)


def rate_of(hyper: Hyper) -> cupy.ndarray:
    """The learning rate as an array [1] on the device, where kernels read it."""
    rate = hyper.rate
    return rate if isinstance(rate, cupy.ndarray) else cupy.asarray([rate], np.float64)


def repeats(kind: int, hyper: Hyper) -> float:
    """How often a gradient is added in the end: momentum repeats it 1 / (1 - momentum) times."""
    return 1 / (1 - hyper.momentum) if kind in VELOCITY else 1.0
