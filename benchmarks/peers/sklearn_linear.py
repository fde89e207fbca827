"""scikit-learn's SGDClassifier, by `partial_fit` on quarters of an epoch.

One thread: SGDClassifier has no more for one output.
"""

from typing import Any

import numpy as np

from benchmarks.peers.contract import Problem, Setting, Stopwatch, combine, loss_of

CHUNKS = 4  # of an epoch

NAME = "sklearn-sgd"
PACKAGE = "scikit-learn"
PACE: tuple[str, ...] = ()


def grid(problem: Problem) -> list[Setting]:
    """Constant and decreasing rates, with and without the penalties usual for text."""
    if not problem.linear:
        return []
    rates = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    return [
        *combine(schedule=("constant",), lr=rates, alpha=(0.0, 1e-6, 1e-5)),
        *combine(schedule=("invscaling",), lr=rates, alpha=(0.0,), power=(0.1, 0.25, 0.5)),
        *combine(schedule=("optimal",), lr=(1.0,), alpha=(1e-7, 1e-6, 1e-5, 1e-4)),
    ]


def train(problem: Problem, setting: Setting, seed: int, watch: Stopwatch) -> None:
    """Chunks are cut before the clock starts; scikit-learn shuffles within a chunk."""
    order = np.random.default_rng(seed).permutation(len(problem.train))
    chunks = [
        (problem.train.x[rows], problem.train.y[rows]) for rows in np.array_split(order, CHUNKS)
    ]
    classifier(setting, seed).partial_fit(*chunks[0], classes=[0, 1])  # warm-up
    model = classifier(setting, seed)
    untrained = np.zeros((len(problem.test), 1), np.float32)
    watch.start(lambda: loss_of(problem, lambda rows: untrained[rows]))
    measure = lambda: loss_of(  # noqa: E731
        problem, lambda rows: model.decision_function(problem.test.x[rows])[:, None]
    )
    while True:
        for x, y in chunks:
            model.partial_fit(x, y, classes=[0, 1])
            watch.rows += len(y)
            if watch.due and watch.over(measure):
                return


def classifier(setting: Setting, seed: int) -> Any:
    """An untrained SGDClassifier."""
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(
        loss="log_loss",
        penalty="l2" if setting["alpha"] else None,
        alpha=setting["alpha"] or 0.0001,
        learning_rate=setting["schedule"],
        eta0=setting["lr"],
        power_t=setting.get("power", 0.5),
        random_state=seed,
    )
