"""The interface of peers: their input, their answer, and the stopwatch that is the same for all.

Covers: rows as NumPy and SciPy arrays, the test loss, training seconds without evaluation.
Does not cover: processes (see common/peer_process.py), the search (see common/search.py).
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples

Setting = dict[str, Any]  # e.g. {"batch": 64, "lr": 0.1, "threads": 2}
Curve = list[tuple[float, float]]  # training seconds, test loss
Matrix = Any  # float32: NDArray or SciPy's csr_array, which is imported only where one is made

EVALUATION_FRACTION = 0.05  # minimum time between evaluations, of the training seconds so far
CHEAP_S = 0.1  # the cost of an evaluation up to this long is ignored
BLOCK_ROWS = 4096  # of an evaluation
MANY_FEATURES = 4096  # above this a gradient changes a small fraction of the first layer


@dataclass(frozen=True, slots=True)
class Rows:
    """N rows: x float32[N, F], dense or CSR; y the labels.

    y is float32[N] (0 or 1, or the class's number), or with many labels a row CSR [N, C] of ones.
    """

    x: Matrix
    y: Matrix

    @classmethod
    def of(cls, examples: Examples, outputs: int) -> "Rows":
        """The same rows; only the row pointers are copied."""
        from scipy.sparse import csr_array

        inputs, labels = examples.inputs, examples.labels
        x, y = inputs.dense, labels.values
        if examples.sparse:
            shape = (examples.rows, examples.features)
            x = csr_array((inputs.values, inputs.indices, _narrow(inputs.indptr)), shape=shape)
        if len(labels.indptr):
            ones = np.ones(len(labels.indices), np.float32)
            shape = (examples.rows, outputs)
            y = csr_array((ones, labels.indices, _narrow(labels.indptr)), shape=shape)
        return cls(x, y)

    def __len__(self) -> int:
        return int(self.x.shape[0])

    @property
    def features(self) -> int:
        """The number of features F."""
        return int(self.x.shape[1])

    def blocks(self) -> Iterator[slice]:
        """Slices that together cover all rows."""
        for start in range(0, len(self), BLOCK_ROWS):
            yield slice(start, start + BLOCK_ROWS)


@dataclass(frozen=True, slots=True)
class Problem:
    """A data set and the network to train on it, with ReLU; linear without `hidden` layers."""

    loss: str  # "softmax", "logistic" or "multilabel"
    hidden: tuple[int, ...]
    outputs: int
    train: Rows
    test: Rows

    @property
    def linear(self) -> bool:
        """Whether there is no hidden layer."""
        return not self.hidden


def _sparse(matrix: Matrix) -> bool:
    """Whether it is a CSR matrix."""
    return not isinstance(matrix, np.ndarray)


def dense(matrix: Matrix) -> NDArray[np.float32]:
    """`matrix` as a dense array, float32 and C-contiguous."""
    full = matrix.toarray() if _sparse(matrix) else matrix
    return np.ascontiguousarray(full, np.float32)


def forms(rows: Rows) -> tuple[str, ...]:
    """The forms in which the first layer can take rows; dense only if that fits in memory."""
    if not _sparse(rows.x):
        return ("dense",)
    return ("bag",) if rows.features > MANY_FEATURES else ("dense", "bag")


def mean_loss(loss: str, scores: NDArray[np.float32], y: Matrix) -> float:
    """Mean loss per row of scores[N, C], defined as in hogbatch.

    softmax: log(sum(exp(s))) - s[y]; the others: log(1 + exp(s)) - s y, summed over C.
    """
    scores = scores.astype(np.float64)
    if loss == "softmax":
        top = scores.max(axis=1)
        total = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        return float(np.mean(total - scores[np.arange(len(scores)), y.astype(np.intp)]))
    chosen = y.multiply(scores).sum() if _sparse(y) else scores[:, 0] @ y
    return float((np.logaddexp(0, scores).sum() - chosen) / len(scores))


def loss_of(problem: Problem, scores: Callable[[slice], NDArray[np.float32]]) -> float:
    """Mean test loss; `scores` returns the scores [rows, C] of some test rows."""
    total = 0.0
    for rows in problem.test.blocks():
        found = scores(rows)
        total += mean_loss(problem.loss, found, problem.test.y[rows]) * len(found)
    return total / len(problem.test)


def accuracy(problem: Problem, best: Callable[[slice], NDArray[np.int64]]) -> float:
    """P@1 over the test rows; `best` returns the label with the highest score of some of them."""
    hits = 0
    for rows in problem.test.blocks():
        y = problem.test.y[rows]
        hits += int(y[np.arange(y.shape[0]), best(rows)].sum())
    return hits / len(problem.test)


@dataclass(slots=True)
class Stopwatch:
    """Training seconds of one run, evaluations excluded, and its test losses.

    `rival` is the curve of the best setting so far; a run far behind it is stopped.
    """

    target: float
    limit_s: float
    rival: Sequence[Sequence[float]] = ()
    clock: Callable[[], float] = time.perf_counter
    curve: Curve = field(default_factory=list)
    rows: int = 0  # trained on, counted by the peer
    _before: float = 0.0
    _since: float = 0.0
    _took: float = 0.0  # duration of the last evaluation

    def start(self, measure: Callable[[], float]) -> None:
        """Record the loss before training, then start the clock."""
        self.curve.append((0.0, measure()))
        self._since = self.clock()

    @property
    def seconds(self) -> float:
        """Training seconds so far."""
        return self._before + self.clock() - self._since

    @property
    def due(self) -> bool:
        """Whether to evaluate now: rarely enough that training takes most of the time."""
        seconds = self.seconds
        cost_s = self._took if self._took > CHEAP_S else 0.0
        pause = max(cost_s, EVALUATION_FRACTION * seconds)
        return seconds >= min(self.limit_s, self.curve[-1][0] + pause)

    def over(self, measure: Callable[[], float]) -> bool:
        """Evaluate with the clock stopped; whether the run should end."""
        self._before = self.seconds
        began = self.clock()
        loss = measure()
        self._since = self.clock()
        self._took = self._since - began
        if not math.isfinite(loss):
            return True
        self.curve.append((self._before, loss))
        done = loss <= self.target or self._before >= self.limit_s
        return done or hopeless(self.curve, self.rival)


def reached(curve: Sequence[Sequence[float]], target: float) -> float | None:
    """Seconds of the first evaluation at or below `target`; None if there is none."""
    return next((seconds for seconds, loss in curve if loss <= target), None)


def hopeless(curve: Sequence[Sequence[float]], rival: Sequence[Sequence[float]]) -> bool:
    """Whether more than 0.4 of the rival's time has passed at less than 0.4 of its speed.

    Lowest losses are compared, not the last ones: with a high rate the loss may rise first.
    """
    if not rival:
        return False
    seconds, whole = curve[-1][0], rival[-1][0]
    lowest = min(loss for _, loss in curve)
    then = min((loss for at, loss in rival if at <= 0.4 * seconds), default=math.inf)
    return seconds > whole or (seconds > 0.4 * whole and lowest > then)


RATES = {  # for plain SGD, by loss; a sum over labels has larger gradients
    "softmax": (0.1, 0.2, 0.5, 1.0, 2.0),
    "logistic": (0.1, 0.2, 0.5, 1.0, 2.0),
    "multilabel": (0.01, 0.02, 0.05, 0.1),
}
LINEAR_RATES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
ADAM_RATES = (0.0005, 0.001, 0.002, 0.005, 0.01)
LINEAR_ADAM_RATES = (0.03, 0.1, 0.3)


def sgd_rates(problem: Problem) -> tuple[float, ...]:
    """Learning rates to try with plain SGD."""
    return LINEAR_RATES if problem.linear else RATES[problem.loss]


def adam_rates(problem: Problem) -> tuple[float, ...]:
    """Learning rates to try with Adam."""
    return LINEAR_ADAM_RATES if problem.linear else ADAM_RATES


class Peer(Protocol):
    """A module with one framework that trains a network as fast as it can."""

    NAME: str
    PACKAGE: str  # its name for pip
    PACE: tuple[str, ...]  # keys of a setting that change only the speed, not the steps

    def grid(self, problem: Problem) -> list[Setting]:
        """The settings to search for `problem`; empty if the peer cannot train it."""
        ...

    def train(self, problem: Problem, setting: Setting, seed: int, watch: Stopwatch) -> None:
        """Train until `watch.over` returns True.

        Array preparation, compilation and warm-up come before `watch.start`.
        """
        ...


def combine(**axes: Sequence[Any]) -> list[Setting]:
    """Every combination of the values of `axes`."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _narrow(indptr: NDArray[np.int64]) -> NDArray[np.int32]:
    """Row pointers as int32, the only type that scikit-learn accepts."""
    if indptr[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"expected fewer than 2^31 stored values; got {indptr[-1]}")
    return indptr.astype(np.int32)


def write_problem(problem: Problem, directory: Path) -> None:
    """Write `problem` into `directory` for other processes."""
    about = np.array([problem.loss, str(problem.outputs), *map(str, problem.hidden)])
    np.save(directory / "about.npy", about)
    for part, rows in (("train", problem.train), ("test", problem.test)):
        for name in ("x", "y"):
            _write(getattr(rows, name), directory / f"{part}-{name}")


def read_problem(directory: Path) -> Problem:
    """Read the problem written by `write_problem`."""
    loss, outputs, *hidden = np.load(directory / "about.npy").tolist()
    train, test = (
        Rows(*(_read(directory / f"{part}-{name}") for name in ("x", "y")))
        for part in ("train", "test")
    )
    return Problem(loss, tuple(map(int, hidden)), int(outputs), train, test)


def _write(matrix: Matrix, stem: Path) -> None:
    if _sparse(matrix):
        from scipy.sparse import save_npz

        save_npz(f"{stem}.npz", matrix, compressed=False)
    else:
        np.save(f"{stem}.npy", matrix)


def _read(stem: Path) -> Matrix:
    if (packed := Path(f"{stem}.npz")).exists():
        from scipy.sparse import load_npz

        return load_npz(packed)
    return np.load(f"{stem}.npy")
