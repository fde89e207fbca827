"""Bucket numbers of vectors, one per table, for layer inputs and for the weights of outputs.

Rows are processed in blocks: SimHash is a matrix product, and DWTA visits the coordinates with one
row in each SIMD lane.
"""

import numpy as np

from hogbatch.jit import inlined, kernel
from hogbatch.kernels.cpu.brgemm import matrix, multiply, submatrix
from hogbatch.kernels.cpu.dense import aligned
from hogbatch.kernels.cpu.intrinsics import address
from hogbatch.kernels.cpu.lsh.functions import SIMHASH
from hogbatch.kernels.cpu.tiles import STORE, Epilogue, Matrix

BLOCK_ROWS = 48  # rows in one matrix product: two of the tallest tiles of every width
LANES = 32
MAX_PROBES = 100  # bins that an empty bin tries to borrow from
MASK_32 = 0xFFFFFFFF
EXCLUDED = np.float32(-np.inf)  # marks coordinates that cannot be the largest of a bin


@kernel
def hash_rows(functions, x, codes):
    """codes[B, L] = the bucket number of x[b, :dimension] in each table; int32.

    x[B, d] is float32 and C-contiguous; columns from `dimension` on are ignored.
    """
    if functions.family == SIMHASH:
        hash_by_sign(functions, x, codes)
    else:
        hash_by_winner(functions, x, codes)


# --- simhash --------------------------------------------------------------------------------------


@inlined
def hash_by_sign(functions, x, codes):
    """`hash_rows` for simhash."""
    width = functions.projections.shape[1]
    size = min(BLOCK_ROWS, x.shape[0])
    scores = aligned(size * width)
    keys = np.empty(functions.tables, np.int64)
    store = Epilogue(STORE, 0, 0.0)
    out, right = Matrix(address(scores), width, 1), matrix(functions.projections)
    for first in range(0, x.shape[0], BLOCK_ROWS):
        rows = min(BLOCK_ROWS, x.shape[0] - first)
        left = submatrix(matrix(x), first, 0)
        multiply(rows, width, functions.dimension, left, right, out, store)
        for row in range(rows):
            pack_signs(functions, scores[row * width : (row + 1) * width], keys, codes[first + row])


@kernel
def pack_signs(functions, scores, keys, codes):
    """Compute the bucket numbers codes[L] from one row's projections scores[K L].

    keys[L] is scratch.
    """
    tables = functions.tables
    keys[:] = 0
    for k in range(functions.hashes):
        for t in range(tables):
            if scores[k * tables + t] > 0.0:
                keys[t] += functions.multipliers[k, t]
    for t in range(tables):
        codes[t] = np.uint32((keys[t] & MASK_32) >> functions.shift).view(np.int32)


# --- dwta -----------------------------------------------------------------------------------------


@inlined
def hash_by_winner(functions, x, codes):
    """`hash_rows` for dwta."""
    count = functions.bins.shape[0]
    columns = np.zeros((functions.dimension, LANES), np.float32)
    winners = np.empty((count, LANES), np.int32)
    best, keys = np.empty(LANES, np.float32), np.empty(LANES, np.int64)
    for first in range(0, x.shape[0], LANES):
        rows = min(LANES, x.shape[0] - first)
        for lane in range(rows):
            copy_row(x[first + lane], columns, lane)
        if find_winners(functions, columns, best, winners) > 0:
            for lane in range(rows):
                borrow(functions, winners, lane)
        mix_winners(functions, winners, keys, codes[first : first + rows])


@kernel
def copy_row(x, columns, lane):
    """columns[dimension, lane] = x, with zeros EXCLUDED."""
    for i in range(columns.shape[0]):
        columns[i, lane] = EXCLUDED if x[i] == 0.0 else x[i]


@kernel
def find_winners(functions, columns, best, winners):
    """winners[K L, LANES] = the position in each bin of its largest coordinate, -1 if all are
    EXCLUDED. Returns how many are -1.
    """
    empty = 0
    for h in range(winners.shape[0]):
        best[:] = EXCLUDED
        winners[h, :] = -1
        for j in range(functions.bins.shape[1]):
            i = functions.bins[h, j]
            for lane in range(best.shape[0]):
                x, maximum, winner = columns[i, lane], best[lane], winners[h, lane]
                best[lane] = x if x > maximum else maximum  # unconditional store: vectorises
                winners[h, lane] = np.int32(j) if x > maximum else winner
        for lane in range(LANES):
            empty += winners[h, lane] < 0
    return empty


@kernel
def borrow(functions, winners, lane):
    """Set the winner of each empty bin to that of another bin ("densification").

    The bins to try are a universal hash of the bin and the attempt, so they are the same for all
    rows. After MAX_PROBES failed attempts the winner is 0.
    """
    count = winners.shape[0]
    for h in range(count):
        if winners[h, lane] >= 0:
            continue
        borrowed = np.int32(0)
        for attempt in range(MAX_PROBES):
            number = functions.probe * (h * MAX_PROBES + attempt) + functions.offset
            other = ((number & MASK_32) * count) >> 32
            if winners[other, lane] >= 0:
                borrowed = winners[other, lane]
                break
        winners[h, lane] = -2 - borrowed  # negative for now: no bin borrows a borrowed winner
    for h in range(count):
        if winners[h, lane] < 0:
            winners[h, lane] = -2 - winners[h, lane]


@kernel
def mix_winners(functions, winners, keys, codes):
    """Compute the bucket numbers codes[rows, L] of a block; keys[LANES] is scratch."""
    tables = functions.tables
    for t in range(tables):
        keys[:] = 0
        for k in range(functions.hashes):
            multiplier = functions.multipliers[k, t]
            for lane in range(keys.shape[0]):
                keys[lane] += winners[k * tables + t, lane] * multiplier
        for lane in range(codes.shape[0]):
            codes[lane, t] = (keys[lane] & MASK_32) >> functions.shift
