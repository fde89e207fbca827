"""Words and word pairs of texts, as hashes; NumPy alone computes them for many rows at a time.

A word is a run of letters, digits and characters beyond ASCII. Its hash is the polynomial of its
bytes with base BASE modulo 2^64, from prefix sums: the sum up to the word's end minus that up to
its start, divided by the power of the base at the start.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.order import RowNumbers
from hogbatch.data.table.columns import TextColumn

BUCKET_BITS: Final = 20
BUCKETS: Final = 1 << BUCKET_BITS
BLOCK_BYTES: Final = 1 << 20  # of text that is hashed at a time
BLOCK_VALUES: Final = 1 << 14  # categories that are hashed at a time
BASE: Final = 0x9E3779B97F4A7C15  # odd, so that it has an inverse
INVERSE: Final = pow(BASE, -1, 1 << 64)
PAIR: Final = 0xD6E8FEB86659FD93
WORD: Final = np.array(
    [chr(byte).isalnum() or byte >= 0x80 for byte in range(256)], np.bool_
)  # whether a byte is part of a word


class Terms(NamedTuple):
    """The distinct words and word pairs of some rows."""

    rows: NDArray[np.int64]  # [n], ascending, from 0 for the first of these rows
    buckets: NDArray[np.int64]  # [n], ascending within a row
    counts: NDArray[np.int64]  # [n], occurrences in the row


def terms(texts: TextColumn, rows: RowNumbers) -> Iterator[tuple[int, Terms]]:
    """Yield blocks of `rows`, each as the number of its rows and their terms."""
    ends = np.cumsum(np.diff(texts.indptr)[rows])
    start = 0
    while start < len(rows):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + BLOCK_BYTES, side="right")))
        indptr, positions = csr.positions(texts.indptr, rows[start:stop])
        row, words = _words(texts.characters[positions], indptr)
        pairs = row[1:] == row[:-1]
        both = _mix(words[:-1][pairs] * np.uint64(PAIR) + words[1:][pairs])
        hashes = np.concatenate([_mix(words), both])
        keys = np.concatenate([row, row[1:][pairs]]) << BUCKET_BITS
        keys |= (hashes >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
        distinct, counts = np.unique(keys, return_counts=True)
        yield stop - start, Terms(distinct >> BUCKET_BITS, distinct & (BUCKETS - 1), counts)
        start = stop


def _words(
    characters: NDArray[np.uint8], indptr: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The row and the hash of each word."""
    within = WORD[characters]
    first = within.copy()  # whether a word starts at each byte
    first[1:] &= ~within[:-1]
    last = within.copy()
    last[:-1] &= ~within[1:]
    starts = indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(characters))]
    first[starts] = within[starts]
    last[starts - 1] = within[starts - 1]
    begin, end = np.flatnonzero(first), np.flatnonzero(last) + 1
    sums = _prefix_sums(characters)
    hashes = (sums[end] - sums[begin]) * _powers(INVERSE, len(characters))[begin]
    return np.searchsorted(indptr, begin, side="right") - 1, hashes


def hashes_of(values: Sequence[str]) -> NDArray[np.uint64]:
    """The hash of each value as a whole, with all its characters: uint64[n]."""
    blocks = [np.empty(0, np.uint64)]
    for start in range(0, len(values), BLOCK_VALUES):
        encoded = [
            value.encode("utf-8", "replace") for value in values[start : start + BLOCK_VALUES]
        ]
        indptr = np.cumsum([0, *map(len, encoded)])
        sums = _prefix_sums(np.frombuffer(b"".join(encoded), np.uint8))
        first = _powers(INVERSE, len(sums))[indptr[:-1]]
        blocks.append(_mix((sums[indptr[1:]] - sums[indptr[:-1]]) * first))
    return np.concatenate(blocks)


def _prefix_sums(characters: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Sums of (byte + 1) times the powers of BASE: uint64[n + 1]."""
    sums = np.zeros(len(characters) + 1, np.uint64)
    terms = (characters.astype(np.uint64) + np.uint64(1)) * _powers(BASE, len(characters))
    np.cumsum(terms, out=sums[1:])
    return sums


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """1, base, base², ... modulo 2^64."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)


def _mix(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the bits: the finalizer of MurmurHash3."""
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return hashes ^ (hashes >> np.uint64(33))
