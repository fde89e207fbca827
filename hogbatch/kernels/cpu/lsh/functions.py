"""Hash functions: K hashes for each of L tables, drawn at random from one of two families.

simhash   the sign of a projection on a random vector, of which a third of the coordinates are
          ±1 and the others 0: Charikar 2002; sparse projections: Achlioptas 2003
dwta      which of some random coordinates is the largest, ignoring zeros: Chen and Shrivastava
          2018. Random permutations of the coordinates are split into bins, one per hash. A bin
          of zeros borrows the hash of another bin ("densification", Shrivastava 2017).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.dense import aligned

SIMHASH: Final = 0
DWTA: Final = 1
FAMILIES: Final = {"simhash": SIMHASH, "dwta": DWTA}

PROJECTION_SPARSITY: Final = 3  # one in 3 coordinates of a projection is not 0
BIN_SIZE: Final = 8  # coordinates in a bin of dwta


class HashFunctions(NamedTuple):
    """K hash functions for each of L tables; hash k of table t has the number h = k L + t."""

    family: int
    dimension: int  # coordinates without padding; stored vectors may be wider
    hashes: int  # K
    tables: int  # L
    projections: Floats  # simhash: [dimension, K L, rounded up to whole cache lines]; else [0, 0]
    bins: NDArray[np.int32]  # the coordinates in each bin: [K L, bin]; simhash: [0, 0]
    # Bucket number in table t: the sum over k of hash * multipliers[k, t], modulo 2^32, >> shift.
    multipliers: NDArray[np.int64]  # [K, L]
    shift: int
    probe: int  # selects the bins from which an empty bin borrows: see `hashing.borrow`
    offset: int


def draw(
    family: int, dimension: int, hashes: int, tables: int, bits: int, seed: int
) -> HashFunctions:
    """Draw K = `hashes` functions for each of L = `tables` tables of 2^bits buckets.

    The same arguments give the same functions in every process. bits <= 32.
    """
    random = np.random.default_rng(seed)
    count = hashes * tables
    projections, bins = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int32)
    values = 2  # number of possible values of a hash
    if family == SIMHASH:
        projections = _projections(random, dimension, count)
    else:
        bins = _bins(random, dimension, count)
        values = bins.shape[1]
    multipliers, shift = _mixing(random, hashes, tables, (values - 1).bit_length(), bits)
    probe, offset = (int(number) for number in random.integers(0, 1 << 31, 2))
    return HashFunctions(
        family, dimension, hashes, tables, projections, bins, multipliers, shift, probe | 1, offset
    )


def _projections(random: np.random.Generator, dimension: int, count: int) -> Floats:
    """`count` columns with ±1 in a third of the coordinates; the others and the padding are 0."""
    width = -(-count // 16) * 16
    projections = aligned(dimension * width).reshape(dimension, width)
    chosen = np.zeros((dimension, count), np.float32)
    chosen[: -(-dimension // PROJECTION_SPARSITY)] = 1
    signs = random.choice(np.array([-1, 1], np.float32), (dimension, count))
    projections[:, :count] = random.permuted(chosen, axis=0) * signs
    projections[:, count:] = 0
    return projections


def _bins(random: np.random.Generator, dimension: int, count: int) -> NDArray[np.int32]:
    """`count` bins of up to BIN_SIZE coordinates, cut from random permutations."""
    size = min(BIN_SIZE, dimension)
    per_permutation = dimension // size
    order = np.tile(np.arange(dimension, dtype=np.int32), (-(-count // per_permutation), 1))
    permutations = random.permuted(order, axis=1)[:, : per_permutation * size]
    return np.ascontiguousarray(permutations.reshape(-1, size)[:count])


def _mixing(
    random: np.random.Generator, hashes: int, tables: int, width: int, bits: int
) -> tuple[NDArray[np.int64], int]:
    """Multipliers and shift that combine K hashes of `width` bits into a bucket number.

    The hashes are concatenated if they fit into `bits`. Otherwise they are combined by multilinear
    multiply-shift hashing: two different lists collide with probability 2^-bits if
    bits + width <= 33 (Dietzfelbinger 1996).
    """
    if hashes * width <= bits:
        places = np.int64(1) << (width * np.arange(hashes, dtype=np.int64))
        return np.repeat(places[:, np.newaxis], tables, axis=1), 0
    return random.integers(0, 1 << 32, (hashes, tables)), 32 - bits
