"""How good are models at the defaults on small tables, compared with scikit-learn's?

hogbatch trains on every table twice, as it is and with all features (for regression also the
targets) multiplied by 1e6, at its defaults and with nothing but the seed given. Each model gets
four fifths of the rows, holds back a fifth of these itself, and is scored on the remaining rows:
accuracy, or R² for regression, as means over ten splits, stratified by class. The peers are
logistic or ridge regression and a multi-layer perceptron, both on standardised features, the
perceptron also on standardised targets; they train on all four fifths.

    scripts/bench quality --json out.json [--sets iris,wine] [--splits 3]

Prints one line per table: the mean scores, and the margin of hogbatch's worse score over the better
peer. The diamonds come with plotnine; they are skipped if it is not installed.
"""

import csv
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hogbatch
from benchmarks.common import arguments, report

FACTOR = 1e6
ITERATIONS = 1000  # maximum, of a peer
CLARITIES = ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]
CUTS = ["Fair", "Good", "Very Good", "Premium", "Ideal"]
COLORS = "JIHGFED"


class TabularData(NamedTuple):
    """A data set in memory."""

    X: NDArray[np.float64]  # [N, F]
    y: NDArray[np.float64]  # [N]
    classes: bool  # whether y are classes, not numbers

    def times(self, factor: float) -> "TabularData":
        """The same table in other units."""
        return TabularData(
            self.X * factor, self.y if self.classes else self.y * factor, self.classes
        )

    def splits(self, count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Pairs of training rows and test rows."""
        kind = StratifiedShuffleSplit if self.classes else ShuffleSplit
        yield from kind(count, test_size=0.2, random_state=0).split(self.X, self.y)

    def score(self, y: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
        """Accuracy, or R² for numbers."""
        return float((accuracy_score if self.classes else r2_score)(y, predicted))


def bundled(load: Callable[[], Any], classes: bool = True) -> Callable[[], TabularData]:
    """A function that loads a data set bundled with scikit-learn."""

    def table() -> TabularData:
        found = load()
        return TabularData(found.data, found.target.astype(np.float64), classes)

    return table


def friedman() -> TabularData:
    """2,000 rows of Friedman's first problem, with noise of standard deviation 1."""
    X, y = datasets.make_friedman1(2000, noise=1.0, random_state=0)
    return TabularData(X, y, classes=False)


def diamonds() -> TabularData:
    """10,000 rows of ggplot2's diamonds; grades as ranks.

    PackageNotFoundError if plotnine is not installed.
    """
    path = next(file for file in files("plotnine") or [] if file.name == "diamonds.csv").locate()
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = [rows[n] for n in np.random.default_rng(0).permutation(len(rows))[:10_000]]
    numbers = ("carat", "depth", "table", "x", "y", "z")
    ranks = (("cut", CUTS), ("color", COLORS), ("clarity", CLARITIES))
    X = [
        [*(float(row[name]) for name in numbers), *(of.index(row[name]) for name, of in ranks)]
        for row in chosen
    ]
    return TabularData(
        np.array(X), np.array([float(row["price"]) for row in chosen]), classes=False
    )


TABLES = {
    "iris": bundled(datasets.load_iris),
    "wine": bundled(datasets.load_wine),
    "breast cancer": bundled(datasets.load_breast_cancer),
    "digits": bundled(datasets.load_digits),
    "diabetes": bundled(datasets.load_diabetes, classes=False),
    "diamonds": diamonds,
    "friedman1": friedman,
}


def ours(table: TabularData, train: NDArray[np.int64], test: NDArray[np.int64], seed: int) -> float:
    """Test score of hogbatch at its defaults."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data.npz")
        np.savez(data, X=table.X[train], y=table.y[train])
        run = hogbatch.train(data, run_dir=str(Path(folder, "run")), seed=seed, quiet=True)
        return table.score(table.y[test], run.model.predict(table.X[test]))


def linear(table: TabularData) -> Any:
    """Logistic or ridge regression on standardised features."""
    model = LogisticRegression(max_iter=ITERATIONS) if table.classes else Ridge()
    return make_pipeline(StandardScaler(), model)


def perceptron(table: TabularData) -> Any:
    """scikit-learn's neural network on standardised features and targets."""
    kind = MLPClassifier if table.classes else MLPRegressor
    model = kind(max_iter=ITERATIONS, random_state=0)
    if not table.classes:
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    return make_pipeline(StandardScaler(), model)


def peer(
    model: Any, table: TabularData, train: NDArray[np.int64], test: NDArray[np.int64], seed: int
) -> float:
    """Test score of a scikit-learn model."""
    model.fit(table.X[train], table.y[train])
    return table.score(table.y[test], model.predict(table.X[test]))


def measure(name: str, table: TabularData, splits: int) -> dict[str, Any]:
    """Scores of all models, in turn on each split."""
    scores: dict[str, list[float]] = {"raw": [], "times 1e6": [], "linear": [], "perceptron": []}
    scaled = table.times(FACTOR)
    for seed, (train, test) in enumerate(table.splits(splits)):
        scores["raw"].append(ours(table, train, test, seed))
        scores["times 1e6"].append(ours(scaled, train, test, seed))
        scores["linear"].append(peer(linear(table), table, train, test, seed))
        scores["perceptron"].append(peer(perceptron(table), table, train, test, seed))
    means = {contender: float(np.mean(found)) for contender, found in scores.items()}
    margin = min(means["raw"], means["times 1e6"]) - max(means["linear"], means["perceptron"])
    return {"set": name, "rows": len(table.X), "means": means, "margin": margin, "scores": scores}


def main() -> None:
    """Measure the chosen tables; print a line for each."""
    parser = arguments.parser("quality", __doc__)
    add, sets = parser.add_argument, list(TABLES)
    add("--sets", type=arguments.names(sets), default=sets, help=", ".join(sets))
    add("--splits", type=int, default=10, help="number of splits (default: 10)")
    arguments.add_json(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = []
    for name in given.sets:
        try:
            table = TABLES[name]()
        except PackageNotFoundError as error:
            print(f"skipping {name}: {error.name} is not installed")
            continue
        results.append(measure(name, table, given.splits))
        means = "  ".join(f"{key} {value:.4f}" for key, value in results[-1]["means"].items())
        print(f"{name:14} {means}  margin {results[-1]['margin']:+.4f}", flush=True)
        report.write(given.json, results, splits=given.splits)


if __name__ == "__main__":
    main()
