"""A generated set with the statistics of Amazon-670K, as XMC text.

Amazon-670K (McAuley & Leskovec 2013): 490,449 training rows, 135,909 features, 76 stored values and
5.5 labels a row. Labels form groups of neighbours; a label has features of its own, and labels and
features occur by Zipf's law. A row has some of the features of each of its labels, and others that
say nothing about them.
"""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.generated import zipf

FEATURES: Final = 135_909
ROWS: Final = 490_449
LABELS: Final = 670_091
TEST_ROWS: Final = 10_000
MEAN_LABELS: Final = 6.5  # drawn; 5.5 of them are different
GROUP: Final = 16  # labels that occur together
OWN: Final = 24  # features of a label
DRAWN: Final = 8  # of them, by each of its rows
NOISE: Final = 32  # features of a row that say nothing about its labels
PART: Final = 20_000  # rows generated at a time


def write(directory: Path, rows: int, labels: int, seed: int = 0) -> tuple[Path, Path]:
    """Write train.xmc with `rows` rows and test.xmc, and return their paths."""
    random = np.random.default_rng(seed)
    own = zipf(random, FEATURES, (labels, OWN), 1000)
    words = [f"{n}:{value:.3f}" for n, value in enumerate(1 + np.log1p(np.arange(FEATURES)))]
    names = [str(n) for n in range(labels)]
    paths = directory / "train.xmc", directory / "test.xmc"
    for path, count in zip(paths, (rows, TEST_ROWS), strict=True):
        with path.open("w") as file:
            file.write(f"{count} {FEATURES} {labels}\n")
            for start in range(0, count, PART):
                for of_row, stored in part(random, own, min(PART, count - start)):
                    text = ",".join(names[n] for n in of_row)
                    file.write(f"{text} {' '.join([words[n] for n in stored])}\n")
    return paths


def part(
    random: np.random.Generator, own: NDArray[np.int64], count: int
) -> list[tuple[list[int], list[int]]]:
    """(labels, features) of `count` rows, both ascending."""
    labels = len(own)
    first = zipf(random, labels, (count,), 100)
    many = 1 + random.poisson(MEAN_LABELS - 1, count)
    rows = np.repeat(np.arange(count), many)
    near = first[rows] // GROUP * GROUP + random.integers(GROUP, size=len(rows))
    starts = np.cumsum(many) - many
    near[starts] = first
    near = np.minimum(near, labels - 1)
    stored = own[near[:, None], random.integers(OWN, size=(len(rows), DRAWN))]
    noise = zipf(random, FEATURES, (count, NOISE), 10)
    split = np.split(stored, starts[1:])
    of_rows = np.split(near, starts[1:])
    return [
        (sorted({*of_row.tolist()}), sorted({*own_.ravel().tolist(), *other}))
        for of_row, own_, other in zip(of_rows, split, noise.tolist(), strict=True)
    ]
