"""Generated tables, each with a difficulty of its own; the rows are always the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]


def many_classes(_: Path) -> pd.DataFrame:
    """200 overlapping classes of about 50 rows each, 30 numbers."""
    random = np.random.default_rng(1)
    classes = random.integers(200, size=10_000)
    x = random.normal(size=(200, 30))[classes] + random.normal(0, 1.4, (10_000, 30))
    return _frame(x, classes)


def rare(_: Path) -> pd.DataFrame:
    """1 % positive rows, by sums, a product and a square; 10 of 20 numbers have no influence."""
    random = np.random.default_rng(2)
    x = random.normal(size=(20_000, 20))
    score = x[:, :6].sum(axis=1) + 2 * x[:, 6] * x[:, 7] + x[:, 8] ** 2 - x[:, 9]
    score += random.gumbel(0, 1.5, len(x))
    return _frame(x, score > np.quantile(score, 0.99))


def noise(_: Path) -> pd.DataFrame:
    """500 numbers that say nothing about the two classes."""
    random = np.random.default_rng(3)
    return _frame(random.normal(size=(1_000, 500)), random.integers(2, size=1_000))


def words(_: Path) -> tuple[Any, NDArray[np.bool_]]:
    """18,000 x 50,000, 60 words per row; the classes depend on many weak words."""
    return _texts(4, 18_000, 50_000, 60, 0.8)


def wide(_: Path) -> tuple[Any, NDArray[np.bool_]]:
    """12,000 x 20,000, 20 words per row; the classes depend on products of groups of words, too."""
    return _texts(5, 12_000, 20_000, 20, 0.4, products=1)


def few_words(_: Path) -> tuple[Any, NDArray[np.bool_]]:
    """6,000 x 30,000, 25 words per row; the classes depend, weakly, on one word in twenty."""
    random = np.random.default_rng(10)
    texts = _tf_idf(random, 6_000, 30_000, 25)
    score = texts[:, ::20] @ random.normal(size=1_500)
    score = score / score.std() + random.logistic(0, 0.5, len(score))
    return texts, score > np.median(score)


def topics(_: Path) -> tuple[Any, NDArray[np.int64]]:
    """12,000 x 15,000, 40 words per row; five classes, by sums over all words."""
    random = np.random.default_rng(11)
    texts = _tf_idf(random, 12_000, 15_000, 40)
    scores = texts @ random.normal(size=(15_000, 5))
    return texts, np.argmax(scores / scores.std() + random.gumbel(0, 0.3, scores.shape), axis=1)


def no_signal(_: Path) -> pd.DataFrame:
    """300 numbers that say nothing about the three classes of 600 rows."""
    random = np.random.default_rng(12)
    return _frame(random.normal(size=(600, 300)), random.integers(3, size=600))


def hours(_: Path) -> pd.DataFrame:
    """Rented bicycles in 10,000 hours: two peaks on workdays, one on others; season and weather."""
    random = np.random.default_rng(6)
    every = pd.date_range("2024-01-01", periods=17_000, freq="h")
    time = every[np.sort(random.permutation(len(every))[:10_000])]
    frame = pd.DataFrame({name: getattr(time, name) for name in ("year", "month", "hour")})
    hour, day = frame.hour.to_numpy(), time.dayofyear.to_numpy()
    frame["weekday"], frame["holiday"] = time.weekday, np.isin(day, random.permutation(366)[:12])
    frame["weather"] = weather = random.choice(4, 10_000, p=(0.65, 0.25, 0.08, 0.02))
    warmth = 12 - 10 * np.cos(2 * np.pi * (day - 20) / 366) + 4 * np.sin(np.pi * (hour - 8) / 12)
    frame["warmth"] = warmth = (warmth + random.normal(0, 3, 10_000)).round(1)
    frame["humidity"] = (60 + 15 * weather + random.normal(0, 12, 10_000)).clip(10, 100).round()
    rush = _peak(hour, 8, 1.2) + 1.3 * _peak(hour, 17.5, 1.6) + 0.25 * _peak(hour, 13, 4)
    work = (frame.weekday < 5) & ~frame.holiday
    rate = (0.03 + np.where(work, rush, 0.9 * _peak(hour, 14, 4))) * (1 + 0.5 * (frame.year > 2024))
    rate *= np.clip(1 - ((warmth - 24) / 22) ** 2, 0.1, 1) * np.array((1, 0.85, 0.5, 0.3))[weather]
    return frame.assign(target=random.poisson(400 * rate * random.gamma(20, 0.05, 10_000)))


def loans(_: Path) -> pd.DataFrame:
    """Interest of 30,000 loans: thresholds and products, such as the rules of a bank."""
    random = np.random.default_rng(7)
    count = 30_000
    income, amount = random.lognormal(11, 0.5, count), random.lognormal(9.4, 0.6, count)
    frame = pd.DataFrame({"income": income.round(-2), "amount": amount.round(-2)})
    frame["term"] = random.choice(("36 months", "60 months"), count, p=(0.7, 0.3))
    frame["purpose"] = random.choice(list("abcdefghij"), count)
    frame["score"] = random.normal(700, 40, count).round()
    frame["debt"] = random.beta(2, 6, count).round(4)
    frame["years"] = years = random.integers(0, 11, count).astype(float)
    frame["late"] = random.poisson(0.3, count)
    steps = np.searchsorted((620, 660, 690, 720, 750), frame.score)
    interest = 18 - 2.3 * steps + 2 * (frame.term == "60 months") * (steps < 4) + 1.5 * frame.late
    interest += 6 * frame.debt * (amount / income > 0.25) - 0.1 * years
    interest += 0.6 * frame.purpose.map(lambda name: ord(name) % 4)
    frame.loc[random.random(count) < 0.1, "years"] = np.nan
    return frame.assign(target=interest + random.normal(0, 0.8, count))


def heavy_tail(_: Path) -> pd.DataFrame:
    """Numbers whose logarithm depends on the features; a few large ones decide the error."""
    random = np.random.default_rng(8)
    x = random.normal(size=(20_000, 12))
    logarithm = 0.8 * x[:, 0] + 0.6 * np.abs(x[:, 1]) + 0.5 * x[:, 2] * x[:, 3] + 0.3 * x[:, 5]
    x[:, 5:8] = np.exp(2 * x[:, 5:8])  # heavy tails, too
    return _frame(x, 1000 * np.exp(logarithm + random.normal(0, 0.3, len(x))))


def many_categories(_: Path) -> pd.DataFrame:
    """20,000 rows with a category of 5,000 values, each with an effect of its own."""
    random = np.random.default_rng(9)
    product, shop = random.integers(5_000, size=20_000), random.integers(60, size=20_000)
    product = np.minimum(product, random.integers(5_000, size=20_000))
    x, slopes = random.normal(size=(20_000, 5)), random.normal(size=60)
    y = random.normal(size=5_000)[product] + x[:, 0] * slopes[shop] + np.sin(2 * x[:, 1])
    frame = _frame(x, y + random.normal(0, 0.7, len(y)))
    return frame.assign(product=[f"p{n}" for n in product], shop=[f"s{n}" for n in shop])


def _frame(x: Floats, y: NDArray[Any]) -> pd.DataFrame:
    names = [f"x{number}" for number in range(x.shape[1])]
    return pd.DataFrame(x.astype(np.float32), columns=names).assign(target=y)


def _peak(hour: NDArray[Any], middle: float, width: float) -> Floats:
    return np.asarray(np.exp(-(((hour - middle) / width) ** 2) / 2))


def _texts(
    seed: int, rows: int, columns: int, length: int, noise: float, products: float = 0
) -> tuple[Any, NDArray[np.bool_]]:
    """TF-IDF of words; two classes."""
    random = np.random.default_rng(seed)
    texts = _tf_idf(random, rows, columns, length)
    score, other = (texts @ random.normal(size=(columns, 2))).T
    score = score / score.std() + products * score * other / (score * other).std()
    score += random.logistic(0, noise, rows)
    return texts, score > np.median(score)


def _tf_idf(random: np.random.Generator, rows: int, columns: int, length: int) -> Any:
    """TF-IDF of norm 1 as CSR, `length` words per row drawn by Zipf's law."""
    share = 1 / (np.arange(columns) + 10.0)
    drawn = random.choice(columns, rows * length, p=share / share.sum())
    row = np.repeat(np.arange(rows), length)
    counts = sparse.csr_matrix((np.ones(len(drawn)), (row, drawn)), (rows, columns))
    values = counts @ sparse.diags(np.log(rows / np.bincount(drawn, minlength=columns).clip(1)))
    norm = np.sqrt(values.multiply(values).sum(axis=1)).A1
    return (sparse.diags(1 / norm) @ values).tocsr()
