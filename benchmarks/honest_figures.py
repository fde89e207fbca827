"""Whether the test figures that a run reports are those of rows that it has never seen.

Each repetition draws rows, trains on them with default settings, and compares the test loss and the
test accuracy that the run reports with those of its model on other rows of the same source. If the
reported figure chose anything, such as the epoch whose model is kept, it is better than the other
one on average.

    scripts/bench honest_figures [--times 200] [--sets digits,generated] [--json FILE]
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_classification

import hogbatch
from benchmarks.common import arguments, report

ROWS = 400  # of a training file of the generated set
FRESH = 20_000


class Draw(NamedTuple):
    """The rows of one repetition: features [N, F] and classes [N], which are 0, 1, ...."""

    given: tuple[NDArray[Any], NDArray[Any]]  # training and test rows of the run
    fresh: tuple[NDArray[Any], NDArray[Any]]


def digits(seed: int) -> Draw:
    """Half of the 1,797 images of digits for the run; the others are fresh."""
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    half = len(order) // 2
    given, fresh = order[:half], order[half:]
    return Draw((features[given], labels[given]), (features[fresh], labels[fresh]))


def generated(seed: int) -> Draw:
    """Two classes, 10 features, a tenth of the labels wrong."""
    features, labels = make_classification(
        ROWS + FRESH, 10, n_informative=5, n_clusters_per_class=3, flip_y=0.1, random_state=seed
    )
    return Draw((features[:ROWS], labels[:ROWS]), (features[ROWS:], labels[ROWS:]))


SETS: dict[str, Callable[[int], Draw]] = {"digits": digits, "generated": generated}


def main(flags: Sequence[str] | None = None) -> None:
    """Measure the chosen sets; print a line for each figure."""
    parser = arguments.parser("honest_figures", __doc__)
    parser.add_argument("--times", type=int, default=200, help="repetitions for each set")
    parser.add_argument("--sets", type=arguments.names(list(SETS)), default=list(SETS))
    arguments.add_json(parser)
    options = parser.parse_args(flags)
    results = []
    for name in options.sets:
        differences = np.array([difference(SETS[name], seed) for seed in range(options.times)])
        for figure, column in zip(("loss", "accuracy"), differences.T, strict=True):
            error = float(column.std(ddof=1) / len(column) ** 0.5)
            results.append(
                {
                    "set": name,
                    "figure": figure,
                    "times": options.times,
                    "reported_minus_fresh": float(column.mean()),
                    "standard_error": error,
                }
            )
            biased = abs(column.mean()) > 2 * error
            print(
                f"{name}, {figure}: reported minus fresh {column.mean():+.4f} ± {error:.4f}"
                f" ({'BIASED' if biased else 'unbiased'})",
                flush=True,
            )
        report.write(options.json, results)


def difference(draw: Callable[[int], Draw], seed: int) -> tuple[float, float]:
    """Reported minus fresh test loss, and the same of the accuracy."""
    given, (features, labels) = draw(seed)
    run = hogbatch.train(*given, seed=seed, verbose=False)
    likelihood = run.model.predict_proba(features)[np.arange(len(labels)), labels]
    fresh_loss = -np.log(likelihood.astype(np.float64)).mean()
    fresh_accuracy = (run.model.predict(features) == labels).mean()
    metrics = run.metrics
    return metrics["test_loss"] - fresh_loss, metrics["test_accuracy"] - fresh_accuracy


if __name__ == "__main__":
    main()
