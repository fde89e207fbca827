"""Vectors of ids: they are looked up, and a step changes only those of a batch.

They are the first tensor of a model, row n of vectors[V, E] for id n.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.model import vector
from hogbatch.kernels.cpu.rules import step_row


class EmbeddingScratch(NamedTuple):
    """Memory of one thread."""

    sums: Floats  # [V, E]: gradients, 0 between two batches
    last: NDArray[np.int64]  # [V]: where in the batch an id occurs last


@kernel
def id_of(value, ids):
    """The id, or 0 for a number that is none."""
    return np.int64(value) if 0 < value < ids else np.int64(0)


@kernel
def look_up(x, vectors, out):
    """out[B, T * E] = the vector of each id x[B, T]; 0 for id 0."""
    ids, width = vectors.shape
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            n, first = id_of(x[b, t], ids), t * width
            for e in range(width):
                out[b, first + e] = vectors[n, e] if n > 0 else np.float32(0.0)


def embedding_scratch(count: int, ids: int, width: int) -> EmbeddingScratch:
    """Allocate for any number of ids of a batch."""
    return EmbeddingScratch(np.zeros((ids, width), np.float32), np.empty(ids, np.int64))


@kernel
def step_vectors(kind, hyper, x, grad, space, slots, vectors):
    """`reference.Kernels.step_vectors`; the slots are those of all threads, as in sparse layers."""
    ids, width = vectors.shape
    first, second, params = slots.first.reshape(-1), slots.second.reshape(-1), vectors.reshape(-1)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            n, start = id_of(x[b, t], ids), t * width
            space.last[n] = b * x.shape[1] + t
            if n > 0:
                for e in range(width):
                    space.sums[n, e] += grad[b, start + e]
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            n = id_of(x[b, t], ids)
            if space.last[n] == b * x.shape[1] + t:
                at, gradient = n * width, space.sums[n]
                own = vector(first, at, width), vector(second, at, width)
                step_row(kind, hyper, gradient, *own, vector(params, at, width))
                gradient[:] = 0
