"""The shared model as compiled code sees it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import BIAS_CORRECTED, SUMMED_SLOTS, Floats, Hyper

# Columns of `ModelView.table`, one row a layer: hogbatch.kernels.executor.LayerView as integers.
WEIGHTS, BIAS, FAN_IN, FAN_OUT, WIDTH, ACTIVATION, OUTPUT_MAJOR = range(7)


class ModelView(NamedTuple):
    """The shared model as kernels see it."""

    table: NDArray[np.int64]  # [layers, 7]
    params: Floats  # [P]
    first: Floats  # [P], or [0]
    second: Floats  # [P], or [0]
    steps: NDArray[np.int64]  # [1]: updates so far, for Adam's bias correction
    own_first: Floats  # [P], or [0]: the slots of dense layers, of this thread alone
    own_second: Floats  # [P], or [0]


class BatchSettings(NamedTuple):
    """How to work on the rows of a lease."""

    batch_size: int
    loss: int
    optimizer: int
    fence: int  # go on while the fence line shows this value
    threads: int  # that share the model, each with its own slots of dense layers


@kernel
def vector(flat, offset, length):
    """flat[offset:] as [length]; [0] if `flat` is empty."""
    return flat[:0] if flat.shape[0] == 0 else flat[offset : offset + length]


@kernel
def corrected(optimizer, hyper, t):
    """Adam's bias correction folded into the rate; t counts updates from 1."""
    if optimizer not in BIAS_CORRECTED:
        return hyper
    rate = hyper.rate * np.sqrt(1.0 - hyper.beta2**t) / (1.0 - hyper.momentum**t)
    return Hyper(rate, hyper.l2, hyper.momentum, hyper.beta2, hyper.epsilon)


@kernel
def with_own_slots(optimizer, hyper, threads):
    """`hyper` for dense layers, whose slots each of `threads` threads keeps for itself.

    Shared, they would be fetched from the other threads' caches as often as the weights. Adagrad's
    sum of squares is then one thread's; that of all is some `threads` times as large.
    """
    if optimizer not in SUMMED_SLOTS:
        return hyper
    rate = hyper.rate / np.sqrt(float(threads))
    return Hyper(rate, hyper.l2, hyper.momentum, hyper.beta2, hyper.epsilon)


@kernel
def most_values(inputs, rows, batch_size):
    """Stored values in the fullest batch of a CSR lease; 0 for dense inputs."""
    most = 0
    if inputs.indptr.shape[0] > 0:
        for start in range(0, rows.shape[0], batch_size):
            values = 0
            for b in range(start, min(start + batch_size, rows.shape[0])):
                values += inputs.indptr[rows[b] + 1] - inputs.indptr[rows[b]]
            most = max(most, values)
    return most
