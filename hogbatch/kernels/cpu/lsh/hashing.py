"""Vectors to bucket numbers, one for each table: layer inputs and neurons alike.

Blocks of rows at a time: SimHash is a matrix product, and the other families go through
coordinates with a row in each lane.
"""

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.brgemm import address, matrix, multiply, part, whole
from hogbatch.kernels.cpu.dense import aligned
from hogbatch.kernels.cpu.lsh.functions import DWTA, MINHASH, SIMHASH, TOPK
from hogbatch.kernels.cpu.tiles import STORE, Finish, Matrix

ROWS = 48  # in a block of a product: two of the tallest tiles of every width
LANES = 32
TRIES = 100  # bins that an empty one asks
LOW = 0xFFFFFFFF  # 32 bits
NOTHING = np.float32(-np.inf)  # never wins


@kernel
def hash_rows(functions, x, codes):
    """codes[B, L] = the bucket number of x[b, :dimension] in each table; int32.

    x[B, d] is float32 and C-contiguous; columns from `dimension` on do not count.
    """
    if functions.family == SIMHASH:
        hash_by_sign(functions, x, codes)
    else:
        hash_by_winner(functions, x, codes)


# --- simhash --------------------------------------------------------------------------------------


@kernel
def hash_by_sign(functions, x, codes):
    width = functions.projections.shape[1]
    size = min(ROWS, x.shape[0])
    scores = aligned(size * width)
    keys = np.empty(functions.tables, np.int64)
    store = Finish(STORE, 1.0, 0, 0.0)
    out, right = Matrix(address(scores), width, 1), matrix(functions.projections)
    for first in range(0, x.shape[0], ROWS):
        rows = min(ROWS, x.shape[0] - first)
        left = part(matrix(x), first, 0)
        multiply(rows, width, functions.dimension, left, right, out, whole(), store)
        for row in range(rows):
            pack_signs(functions, scores[row * width : (row + 1) * width], keys, codes[first + row])


@kernel
def pack_signs(functions, scores, keys, codes):
    """The bucket numbers codes[L] of one row's projections scores[K L]; keys[L] is scratch."""
    tables = functions.tables
    keys[:] = 0
    for k in range(functions.hashes):
        for t in range(tables):
            if scores[k * tables + t] > 0.0:
                keys[t] += functions.multipliers[k, t]
    for t in range(tables):
        codes[t] = np.uint32((keys[t] & LOW) >> functions.shift).view(np.int32)


# --- the others -----------------------------------------------------------------------------------


@kernel
def hash_by_winner(functions, x, codes):
    count = functions.bins.shape[0]
    columns = np.zeros((functions.dimension, LANES), np.float32)
    winners = np.empty((count, LANES), np.int32)
    best, keys = np.empty(LANES, np.float32), np.empty(LANES, np.int64)
    heap = np.empty(TOPK, np.int32)
    for first in range(0, x.shape[0], LANES):
        rows = min(LANES, x.shape[0] - first)
        for lane in range(rows):
            if functions.family == MINHASH:
                mark_top(x[first + lane], heap, columns, lane)
            else:
                copy_row(x[first + lane], functions.family == DWTA, columns, lane)
        if find_winners(functions, columns, best, winners) > 0:
            for lane in range(rows):
                borrow(functions, winners, lane)
        mix_winners(functions, winners, keys, codes[first : first + rows])


@kernel
def copy_row(x, drop_zeros, columns, lane):
    """columns[dimension, lane] = x; zeros cannot win if `drop_zeros`."""
    for i in range(columns.shape[0]):
        columns[i, lane] = NOTHING if drop_zeros and x[i] == 0.0 else x[i]


@kernel
def mark_top(x, heap, columns, lane):
    """columns[dimension, lane] = 0 for the TOPK largest coordinates of x that are not 0.

    `heap`[TOPK] is scratch: its root is the smallest so far, of equal ones the last.
    """
    size = 0
    for i in range(columns.shape[0]):
        columns[i, lane] = NOTHING
        if x[i] == 0.0:
            continue
        if size < TOPK:
            place, size = size, size + 1
            while place > 0 and x[heap[(place - 1) // 2]] >= x[i]:
                heap[place] = heap[(place - 1) // 2]
                place = (place - 1) // 2
            heap[place] = i
        elif x[i] > x[heap[0]]:
            sink(x, heap, i)
    for place in range(size):
        columns[heap[place], lane] = 0.0


@kernel
def sink(x, heap, i):
    """Put coordinate `i` in the place of the root of the full heap."""
    place, child = 0, 1
    while child < TOPK:
        if child + 1 < TOPK:
            left, right = heap[child], heap[child + 1]
            child += x[right] < x[left] or (x[right] == x[left] and right > left)
        if x[heap[child]] >= x[i]:
            break
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = i


@kernel
def find_winners(functions, columns, best, winners):
    """winners[K L, LANES]: which coordinate of each bin is largest, -1 where none counts.

    Its place in the bin, under minhash its number. Returns how many are -1.
    """
    without = 0
    for h in range(winners.shape[0]):
        best[:] = NOTHING
        winners[h, :] = -1
        for j in range(functions.bins.shape[1]):
            i = functions.bins[h, j]
            name = i if functions.family == MINHASH else np.int32(j)
            for lane in range(best.shape[0]):
                x, most, winner = columns[i, lane], best[lane], winners[h, lane]
                best[lane] = x if x > most else most  # always stored, so that lanes go together
                winners[h, lane] = name if x > most else winner
        for lane in range(LANES):
            without += winners[h, lane] < 0
    return without


@kernel
def borrow(functions, winners, lane):
    """Give every bin without a winner that of another: the same one to all rows that ask so far.

    Where to look is a universal hash of the bin and of how often it asked. A bin that asked TRIES
    times in vain gets 0.
    """
    count = winners.shape[0]
    for h in range(count):
        if winners[h, lane] >= 0:
            continue
        found = np.int32(0)
        for attempt in range(TRIES):
            number = functions.probe * (h * TRIES + attempt) + functions.offset
            other = ((number & LOW) * count) >> 32
            if winners[other, lane] >= 0:
                found = winners[other, lane]
                break
        winners[h, lane] = -2 - found  # negative as yet: what is borrowed is not lent
    for h in range(count):
        if winners[h, lane] < 0:
            winners[h, lane] = -2 - winners[h, lane]


@kernel
def mix_winners(functions, winners, keys, codes):
    """The bucket numbers codes[rows, L] of a block; keys[LANES] is scratch."""
    tables = functions.tables
    for t in range(tables):
        keys[:] = 0
        for k in range(functions.hashes):
            multiplier = functions.multipliers[k, t]
            for lane in range(keys.shape[0]):
                keys[lane] += winners[k * tables + t, lane] * multiplier
        for lane in range(codes.shape[0]):
            codes[lane, t] = (keys[lane] & LOW) >> functions.shift
