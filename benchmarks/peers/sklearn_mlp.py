"""scikit-learn's MLPClassifier, by `partial_fit` on chunks of several batches."""

from typing import Any

import numpy as np

from benchmarks.peers.contract import (
    MANY_FEATURES,
    Problem,
    Setting,
    Stopwatch,
    adam_rates,
    combine,
    dense,
    loss_of,
    sgd_rates,
)

CHUNK_ROWS = 1024  # approximate rows of one partial_fit, so that its checks cost little


class SklearnMLP:
    """One process; its threads are those of BLAS."""

    name = "sklearn-mlp"
    package = "scikit-learn"
    pace = ("threads", "form")

    def grid(self, problem: Problem) -> list[Setting]:
        """SGD with and without momentum, and Adam."""
        if problem.linear:
            return []
        forms = ("given",) if problem.train.features > MANY_FEATURES else ("given", "dense")
        if isinstance(problem.train.x, np.ndarray):
            forms = ("given",)
        common = {"threads": (1, 2), "form": forms}
        sgd, adam = sgd_rates(problem), adam_rates(problem)
        return [
            *combine(solver=("sgd",), momentum=(0.0, 0.9), batch=(32, 64, 256), lr=sgd, **common),
            *combine(solver=("adam",), batch=(64, 256), lr=adam, **common),
        ]

    def train(self, problem: Problem, setting: Setting, seed: int, watch: Stopwatch) -> None:
        """Chunks of rows, in a new order each epoch; scikit-learn shuffles within a chunk."""
        form = dense if setting["form"] == "dense" else (lambda x: x)
        x, y = form(problem.train.x), labels(problem.train.y)
        chunk = max(1, CHUNK_ROWS // setting["batch"]) * setting["batch"]
        fit(network(setting, seed), x[:chunk], y[:chunk], problem)  # warm-up
        random, model = np.random.default_rng(seed), network(setting, seed)
        fit(model, x[:1], y[:1], problem)  # creates the weights; the one step is to its advantage
        test = form(problem.test.x)
        measure = lambda: loss_of(problem, lambda rows: scores(model, test[rows]))  # noqa: E731
        watch.start(measure)
        while True:
            order = random.permutation(len(y))
            for start in range(0, len(y) - chunk + 1, chunk):
                rows = order[start : start + chunk]
                fit(model, x[rows], y[rows], problem)
                watch.rows += chunk
                if watch.due and watch.over(measure):
                    return


def labels(y: Any) -> Any:
    """Class numbers, or an indicator matrix."""
    return (y if y.ndim == 1 else dense(y)).astype(np.int64)


def network(setting: Setting, seed: int) -> Any:
    """An untrained MLPClassifier without its penalty; `fit` gives it its layers."""
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(
        solver=setting["solver"],
        batch_size=setting["batch"],
        learning_rate_init=setting["lr"],
        momentum=setting.get("momentum", 0.9),
        alpha=0.0,
        random_state=seed,
    )


def fit(model: Any, x: Any, y: Any, problem: Problem) -> None:
    """One pass over the rows."""
    classes = range(max(2, problem.outputs))
    model.hidden_layer_sizes = problem.hidden
    model.partial_fit(x, y, classes=np.array(classes))


def scores(model: Any, x: Any) -> Any:
    """[rows, C] before the last softmax or sigmoid, as `predict_proba` would begin."""
    for weight, bias in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    return x @ model.coefs_[-1] + model.intercepts_[-1]


PEER = SklearnMLP()
