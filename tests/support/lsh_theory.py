"""How often one hash of a pair of vectors agrees, from the definition of each family."""

from math import comb

import numpy as np

from hogbatch.kernels.cpu.lsh.functions import BIN, DWTA, MINHASH, SIMHASH, TOPK, WTA


def simhash(x, y):
    """1 - angle / pi: Goemans and Williamson 1995, for projections on Gaussian numbers."""
    cosine = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
    return 1 - np.arccos(np.clip(cosine, -1, 1)) / np.pi


def both_below(x, y):
    """[i, j]: whether coordinate i beats j in both vectors."""
    return (x[:, None] > x) & (y[:, None] > y)


def wta(x, y):
    """Some coordinate of BIN random ones is largest in both: the others lie below it in both."""
    bins = comb(len(x), BIN)
    return sum(comb(int(below), BIN - 1) for below in both_below(x, y).sum(axis=1)) / bins


def dwta(x, y):
    """As `wta`, but zeros are below all; empty bins ask others.

    Where both are empty they ask the same bin next, as if it were a new hash. Where one is, it gets
    a place in a bin that has nothing to do with the other's: they agree by chance.
    """
    low_x, low_y = np.where(x == 0, -np.inf, x), np.where(y == 0, -np.inf, y)
    counts = both_below(low_x, low_y)[(x != 0) & (y != 0)].sum(axis=1)
    bins = comb(len(x), BIN)
    agree = sum(comb(int(below), BIN - 1) for below in counts) / bins
    both = comb(int(np.sum((x == 0) & (y == 0))), BIN) / bins
    either = (comb(int(np.sum(x == 0)), BIN) + comb(int(np.sum(y == 0)), BIN)) / bins
    return (agree + (either - 2 * both) / BIN) / (1 - both)


def top(x):
    """The set that minhash makes of x."""
    chosen = np.argsort(-x, kind="stable")
    return set([i for i in chosen.tolist() if x[i] != 0][:TOPK])


def minhash(x, y):
    """Jaccard similarity of the sets."""
    return len(top(x) & top(y)) / len(top(x) | top(y))


AGREEMENT = {SIMHASH: simhash, WTA: wta, DWTA: dwta, MINHASH: minhash}
