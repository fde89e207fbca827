"""The scores of rows, for predictions, by the kernels of training."""

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.network import forward, workspace

BATCH = 64  # rows: most of the peak speed, and intermediate results stay in cache


@kernel
def store_scores_of(model, inputs, out, start, stop):
    """out[start : stop, C] = the scores of these rows of `inputs`."""
    sparse, layers = inputs.indptr.shape[0] > 0, model.table.shape[0]
    space, rows = workspace(model.table, sparse, BATCH), np.arange(start, stop)
    for first in range(0, rows.shape[0], BATCH):
        part = rows[first : min(first + BATCH, rows.shape[0])]
        scores = forward(model, np.int64(0), layers, inputs, part, space, None)  # no literal type
        for b in range(part.shape[0]):
            for c in range(out.shape[1]):
                out[part[b], c] = scores[b, c]
