"""Launching of CUDA kernels compiled from `sources`."""

import cupy
import numpy as np

from hogbatch.kernels.contract import VELOCITY, Hyper
from hogbatch.kernels.gpu.sources import SOURCES

THREADS = 256  # per block; BLOCK in the CUDA sources
_MAX_BLOCKS = 8192  # of a grid-stride launch: several times what any device runs concurrently


def kernel(source: str, name: str) -> cupy.RawKernel:
    """The function `name` of SOURCES[source], compiled at its first call and cached on disk."""
    return cupy.RawKernel(SOURCES[source], name)


def over_cells(function: cupy.RawKernel, count: int, *arguments: object) -> None:
    """Launch with about one thread per cell; does nothing without cells."""
    if count > 0:
        blocks = min(-(-count // THREADS), _MAX_BLOCKS)
        function((blocks,), (THREADS,), arguments)


def over_rows(function: cupy.RawKernel, rows: int, width: int, *arguments: object) -> None:
    """Launch with one block per row and about one thread per column; does nothing without rows."""
    if rows > 0:
        threads = min(max(32, 1 << (width - 1).bit_length()), THREADS)
        function((rows,), (threads,), arguments)


def rate_of(hyper: Hyper) -> cupy.ndarray:
    """The learning rate as an array [1] on the device, from which kernels read it."""
    rate = hyper.rate
    return rate if isinstance(rate, cupy.ndarray) else cupy.asarray([rate], np.float64)


def gradient_repetitions(kind: int, hyper: Hyper) -> float:
    """How often a gradient is added in total: 1 / (1 - momentum) times with momentum, else once."""
    return 1 / (1 - hyper.momentum) if kind in VELOCITY else 1.0
