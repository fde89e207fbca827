"""Collision probabilities of one hash of two vectors, from the definition of each family."""

from math import comb

import numpy as np

from hogbatch.kernels.cpu.lsh.functions import BIN_SIZE, DWTA, SIMHASH


def simhash(x, y):
    """1 - angle / pi: Goemans and Williamson 1995, for Gaussian projections."""
    cosine = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
    return 1 - np.arccos(np.clip(cosine, -1, 1)) / np.pi


def both_below(x, y):
    """[i, j]: whether coordinate i is larger than j in both vectors."""
    return (x[:, None] > x) & (y[:, None] > y)


def dwta(x, y):
    """One of BIN_SIZE random coordinates is the largest of both: the others are lower in both.

    Zeros are lower than all other values, and empty bins borrow.
    If both bins are empty, they borrow from the same bin, like a new hash. If one is, it borrows a
    winner from an unrelated bin, so they collide with probability 1 / BIN_SIZE.
    """
    low_x, low_y = np.where(x == 0, -np.inf, x), np.where(y == 0, -np.inf, y)
    counts = both_below(low_x, low_y)[(x != 0) & (y != 0)].sum(axis=1)
    bins = comb(len(x), BIN_SIZE)
    agree = sum(comb(int(below), BIN_SIZE - 1) for below in counts) / bins
    both = comb(int(np.sum((x == 0) & (y == 0))), BIN_SIZE) / bins
    either = (comb(int(np.sum(x == 0)), BIN_SIZE) + comb(int(np.sum(y == 0)), BIN_SIZE)) / bins
    return (agree + (either - 2 * both) / BIN_SIZE) / (1 - both)


AGREEMENT = {SIMHASH: simhash, DWTA: dwta}
