"""The shared model as compiled code sees it: its arrays, and a table of its layers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.augmentation import Augmentation
from hogbatch.jit import kernel
from hogbatch.kernels.contract import BIAS_CORRECTED, SUMMED_SLOTS, Floats, Hyper
from hogbatch.kernels.dropout import Dropout
from hogbatch.kernels.layers import LayerView

# Columns of `ModelView.table`, one for each field of LayerView.
WEIGHTS = LayerView._fields.index("weights")
BIAS = LayerView._fields.index("bias")
FAN_IN = LayerView._fields.index("fan_in")
FAN_OUT = LayerView._fields.index("fan_out")
WIDTH = LayerView._fields.index("width")
ACTIVATION = LayerView._fields.index("activation")


class ModelView(NamedTuple):
    """The shared model, with the optimizer slots that one thread keeps for itself."""

    table: NDArray[np.int64]  # [layers, columns]: see `layer_table`
    params: Floats  # [P]
    first: Floats  # [P], or [0]
    second: Floats  # [P], or [0]
    steps: NDArray[np.int64]  # [1]: updates done, for `corrected`
    own_first: Floats  # [P], or [0]: slots of dense layers, private to this thread
    own_second: Floats  # [P], or [0]


class BatchSettings(NamedTuple):
    """Settings that hold for all batches of a lease."""

    batch_size: int
    loss: int
    optimizer: int
    fence: int  # continue while the fence line shows this value
    threads: int  # sharing the model, each with its own slots of dense layers
    dropout: Dropout | None = None  # None has a type of its own: no code is compiled for dropout
    augmentation: Augmentation | None = None  # only for the loop of networks with a backbone


def layer_table(layers: tuple[LayerView, ...]) -> NDArray[np.int64]:
    """Return int64[layers, columns] for `ModelView.table`, with a column for each field."""
    return np.array(layers, np.int64)


@kernel
def vector(flat, offset, length):
    """Return flat[offset : offset + length]; [0] if `flat` is empty."""
    return flat[:0] if flat.shape[0] == 0 else flat[offset : offset + length]


@kernel
def corrected(optimizer, hyper, t):
    """Return `hyper` with the corrections of update t, from 1, in its rate: see the executor's."""
    rate = hyper.rate
    if t < hyper.warm_up:
        rate *= t / hyper.warm_up
    if optimizer in BIAS_CORRECTED:
        rate *= np.sqrt(1.0 - hyper.beta2**t) / (1.0 - hyper.momentum**t)
    return Hyper(rate, hyper.l2, hyper.momentum, hyper.beta2, hyper.epsilon, hyper.warm_up)


@kernel
def without_decay(hyper):
    """Return `hyper` without weight decay, as biases are updated."""
    return Hyper(hyper.rate, 0.0, hyper.momentum, hyper.beta2, hyper.epsilon, hyper.warm_up)


@kernel
def with_own_slots(optimizer, hyper, threads):
    """Return `hyper` for dense layers, whose slots each of `threads` threads keeps for itself.

    Shared slots would be fetched from the caches of other threads as often as the weights are. The
    sum of squares of Adagrad then counts one thread; that of all is about `threads` times as large.
    """
    if optimizer not in SUMMED_SLOTS:
        return hyper
    rate = hyper.rate / np.sqrt(float(threads))
    return Hyper(rate, hyper.l2, hyper.momentum, hyper.beta2, hyper.epsilon, hyper.warm_up)


@kernel
def max_values(inputs, rows, batch_size):
    """Maximum number of stored values in a batch of a CSR lease; 0 for dense inputs.

    `inputs` may also be labels, of which those of label lists are counted.
    """
    most = 0
    if inputs.indptr.shape[0] > 0:
        for start in range(0, rows.shape[0], batch_size):
            values = 0
            for b in range(start, min(start + batch_size, rows.shape[0])):
                values += inputs.indptr[rows[b] + 1] - inputs.indptr[rows[b]]
            most = max(most, values)
    return most
