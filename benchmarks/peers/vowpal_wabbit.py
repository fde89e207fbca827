"""Vowpal Wabbit through its Python binding, on examples parsed before the clock starts.

A pass over parsed examples is as fast as a pass of `vw --cache_file` (0.046 s and 0.05 to 0.07 s
for imdb on one core), and the model can be evaluated without a new process. One thread: learning in
Vowpal Wabbit is sequential.
"""

from typing import Any

import numpy as np

from benchmarks.peers.contract import Problem, Rows, Setting, Stopwatch, combine, loss_of

CHUNKS = 4  # per pass
BITS = 18  # Vowpal Wabbit's own default

NAME = "vowpal-wabbit"
PACKAGE = "vowpalwabbit"
PACE: tuple[str, ...] = ()


def grid(problem: Problem) -> list[Setting]:
    """The default (adaptive, normalised, invariant updates), parts of it, and plain SGD."""
    if not problem.linear or problem.loss != "logistic":
        return []
    rates = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    return [
        *combine(update=("", "--adaptive", "--adaptive --invariant"), lr=rates, power=(0.5,)),
        *combine(update=("--sgd", "--normalized", "--invariant"), lr=rates, power=(0.0, 0.5)),
    ]


def train(problem: Problem, setting: Setting, seed: int, watch: Stopwatch) -> None:
    """Make passes over the rows in one order, like Vowpal Wabbit's own passes."""
    from vowpalwabbit import Workspace

    order = np.random.default_rng(seed).permutation(len(problem.train))
    space = Workspace(
        f"--quiet --no_stdin --loss_function logistic -b {max(BITS, bits(problem))} "
        f"{setting['update']} -l {setting['lr']} --power_t {setting['power']}"
    )
    train = [space.example(line) for line in lines(problem.train, order)]
    test = [space.example(line) for line in lines(problem.test, range(len(problem.test)))]

    def scores(rows: slice) -> Any:
        found = [space.predict(example) for example in test[rows]]
        return np.array(found, np.float32)[:, None]

    size, measure = -(-len(train) // CHUNKS), lambda: loss_of(problem, scores)
    watch.start(measure)
    while True:
        for start in range(0, len(train), size):
            chunk = train[start : start + size]
            for example in chunk:
                space.learn(example)
            watch.rows += len(chunk)
            if watch.due and watch.over(measure):
                return


def bits(problem: Problem) -> int:
    """Bits of a table with a place of its own for each feature."""
    return problem.train.features.bit_length()


def lines(rows: Rows, order: Any) -> list[str]:
    """Rows in Vowpal Wabbit's text form, labels -1 and 1."""
    x, examples = rows.x, []
    for i in order:
        stored = slice(x.indptr[i], x.indptr[i + 1])
        pairs = zip(x.indices[stored].tolist(), x.data[stored].tolist(), strict=True)
        text = " ".join(f"{index}:{value:.7g}" for index, value in pairs)
        examples.append(f"{1 if rows.y[i] > 0 else -1} | {text}")
    return examples
