"""Generated data sets for which no file is needed; the rows are always the same.

They are written once, into `benchmarks` in the cache directory of hogbatch. pandas is imported when
they are written: benchmarks that do not use these sets run without it.
"""

from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import report
from hogbatch.machine.cachedir import cache_root

CLICK_RATE: Final = 0.25
VALUES: Final = np.geomspace(3, 2e5, 26).astype(int)  # possible ones of each category
MISSING: Final = np.linspace(0, 0.6, 13)  # fraction of each number


def clicks(rows: int) -> Any:
    """Clicks on advertisements, with statistics like those of Criteo's (2014).

    13 counts with heavy tails and missing values, and 26 categories with 3 to 200,000 values by
    Zipf's law. The label depends on each value, on logarithms of counts, and on products of two
    categories; a quarter of the rows is clicked.
    """
    import pandas as pd

    random = np.random.default_rng(0)
    counts = np.floor(random.lognormal(np.linspace(0, 5, 13), np.linspace(1, 2.5, 13), (rows, 13)))
    missing = random.random((rows, 13)) < MISSING
    logarithms = np.where(missing, 0, np.log1p(counts) - np.linspace(0.7, 5, 13))
    score = np.hstack([logarithms, np.abs(logarithms), 3 * missing]) @ random.normal(0, 0.1, 39)
    drawn = [zipf(random, size, (rows,), 3) for size in VALUES]
    for size, values in zip(VALUES, drawn, strict=True):
        score += random.normal(0, 0.25, size)[values]
    for pair in random.permutation(26).reshape(13, 2):
        first, second = (random.normal(0, 0.5, (VALUES[n], 4))[drawn[n]] for n in pair)
        score += (first * second).sum(axis=1)
    score += random.logistic(size=rows)
    frame = pd.DataFrame(np.where(missing, np.nan, counts), columns=[f"n{n}" for n in range(13)])
    frame = frame.astype("Int64")
    for number, values in enumerate(drawn):
        frame[f"c{number}"] = pd.Series(values).map("v{:x}".format)
    return frame.assign(clicked=(score > np.quantile(score, 1 - CLICK_RATE)).astype(int))


def collisions(rows: int) -> Any:
    """Collisions of particles, with columns like those of HIGGS (Baldi et al. 2014).

    Momentum, pseudorapidity and angle of seven particles, and the masses of seven pairs of them.
    The label depends on how near these and other masses are to those of particles, and on products
    of two of these values.
    """
    import pandas as pd

    random = np.random.default_rng(0)
    momentum = random.lognormal(0, 0.5, (rows, 7))
    rapidity, angle = random.normal(0, 1, (rows, 7)), random.uniform(-np.pi, np.pi, (rows, 7))
    first, second = random.permutation(list(combinations(range(7), 2)))[:13].T
    between = np.cosh(rapidity[:, first] - rapidity[:, second])
    between -= np.cos(angle[:, first] - angle[:, second])
    masses = np.sqrt(2 * momentum[:, first] * momentum[:, second] * between)
    near = np.exp(-(((np.log(masses) - random.normal(0.6, 0.3, 13)) / 0.4) ** 2) / 2)
    score = 1.5 * near @ random.normal(size=13) + (near[:, :-1] * near[:, 1:]).sum(axis=1)
    score += random.logistic(size=rows)
    columns = np.hstack([momentum, rapidity, angle, masses[:, :7]]).round(4)
    frame = pd.DataFrame(columns).add_prefix("x")
    return frame.assign(signal=(score > np.median(score)).astype(int))


GENERATORS: Final = {"clicks": clicks, "collisions": collisions}


def csv(name: str, rows: int) -> Path:
    """The file with `rows` rows of a generated set, which is written if it is not there."""
    path = cache_root() / "benchmarks" / f"{name}-{rows}.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        report.replace(path, GENERATORS[name](rows).to_csv(index=False))
    return path


def zipf(
    random: np.random.Generator, count: int, shape: tuple[int, ...], offset: float
) -> NDArray[np.int64]:
    """Numbers below `count`, the probability of n proportional to about 1/(n + offset)."""
    drawn = offset * (np.exp(random.random(shape) * np.log1p(count / offset)) - 1)
    found: NDArray[np.int64] = np.minimum(drawn.astype(np.int64), count - 1)
    return found
