"""TensorFlow: Keras layers and optimizers, the loop over steps inside one `tf.function`.

One process, one or two threads.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from benchmarks.peers.contract import (
    MANY_FEATURES,
    Problem,
    Setting,
    Stopwatch,
    adam_rates,
    combine,
    dense,
    forms,
    loss_of,
    sgd_rates,
)

CHUNK_ROWS = 2048  # approximate rows of one call, so that Python costs little

NAME = "tensorflow"
PACKAGE = "tensorflow-cpu"
PACE = ("threads", "form", "xla")


def grid(problem: Problem) -> list[Setting]:
    """SGD and Adam, batches of 16 to 1,024, with and without XLA."""
    if problem.linear:
        return []
    kinds = [{"form": form, "xla": xla} for form in forms(problem.train) for xla in (0, 1)]
    kinds = [kind for kind in kinds if kind != {"form": "bag", "xla": 1}]  # its shapes vary
    sgd, adam = sgd_rates(problem), adam_rates(problem)
    settings = [
        *combine(optimizer=("sgd",), batch=(16, 32, 64, 256, 1024), lr=sgd, threads=(1, 2)),
        *combine(optimizer=("adam",), batch=(32, 64, 256), lr=adam, threads=(1, 2)),
    ]
    return [setting | kind for setting in settings for kind in kinds]


def train(problem: Problem, setting: Setting, seed: int, watch: Stopwatch) -> None:
    """Tracing, compilation and the first steps are not timed."""
    import tensorflow as tf

    if not tf.config.experimental.list_logical_devices():
        raise RuntimeError("TensorFlow found no device")
    size, random = setting["batch"], np.random.default_rng(seed)
    model = KerasModel(problem, setting, seed)
    epochs = EpochTensors(problem, setting["form"], random)
    steps = max(1, min(CHUNK_ROWS, len(problem.train)) // size)
    model.warm_up(epochs.next(), steps)
    measure = model.evaluation(problem)
    watch.start(measure)
    while True:
        rows = epochs.next()
        for first in range(0, len(problem.train) - steps * size + 1, steps * size):
            model.train(*rows, first, steps)
            watch.rows += steps * size
            if watch.due and watch.over(measure):
                return


class EpochTensors:
    """The training rows as tensors, in a new order each time."""

    def __init__(self, problem: Problem, form: str, random: np.random.Generator) -> None:
        self.x = dense(problem.train.x) if form == "dense" else problem.train.x
        y = dense(problem.train.y)
        self.y = y.astype(np.int32) if problem.loss == "softmax" else y.reshape(len(y), -1)
        self._random = random

    def next(self) -> tuple[Any, Any]:
        """(x, y), where a sparse x is (indices, values, indptr)."""
        import tensorflow as tf

        order = self._random.permutation(len(self.y))
        return as_tensors(self.x[order]), tf.constant(self.y[order])


def as_tensors(x: Any) -> Any:
    """A tensor, or (indices, values, indptr)."""
    import tensorflow as tf

    if not isinstance(x, csr_array):
        return tf.constant(x)
    return tf.constant(x.indices), tf.constant(x.data), tf.constant(x.indptr.astype(np.int64))


class KerasModel:
    """Variables, optimizer and compiled functions of one setting."""

    def __init__(self, problem: Problem, setting: Setting, seed: int) -> None:
        import keras

        keras.utils.set_random_seed(seed)
        widths = (problem.train.features, *problem.hidden, problem.outputs)
        self.weights = [
            (keras.Variable("glorot_uniform", shape=pair), keras.Variable("zeros", shape=pair[1:]))
            for pair in pairwise(widths)
        ]
        self.problem, self.setting = problem, setting
        kind = keras.optimizers.Adam if setting["optimizer"] == "adam" else keras.optimizers.SGD
        self.optimizer = kind(setting["lr"])
        self.variables = [variable for layer in self.weights for variable in layer]
        self.optimizer.build(self.variables)
        self.train = self._compiled()

    def scores(self, x: Any) -> Any:
        """[rows, C] for dense rows, or (indices, values, row of each value, rows)."""
        import tensorflow as tf

        for number, (weight, bias) in enumerate(self.weights):
            x = (_sum_rows(weight, *x) if isinstance(x, tuple) else x @ weight.value) + bias.value
            if number < len(self.weights) - 1:
                x = tf.nn.relu(x)
        return x

    def _step(self, x: Any, y: Any) -> None:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            scores = self.scores(x)
            if self.problem.loss == "softmax":
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores)
            else:
                losses = tf.nn.sigmoid_cross_entropy_with_logits(y, scores)
            loss = tf.reduce_sum(losses) / self.setting["batch"]
        values = [variable.value for variable in self.variables]
        self.optimizer.apply(tape.gradient(loss, values), self.variables)

    def _compiled(self) -> Callable[..., None]:
        """`train(x, y, first, steps)`: consecutive steps from row `first` on."""
        import tensorflow as tf

        size = self.setting["batch"]
        step = tf.function(self._step, jit_compile=bool(self.setting["xla"]))

        @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
        def train(x: Any, y: Any, first: Any, steps: Any) -> None:
            for number in tf.range(steps):
                start = first + number * size
                targets = y[start : start + size]
                targets.set_shape((size, *y.shape[1:]))
                step(_batch(x, start, size), targets)

        return lambda x, y, first, steps: train(x, y, tf.constant(first), tf.constant(steps))

    def warm_up(self, rows: tuple[Any, Any], steps: int) -> None:
        """Trace and compile by training, then restore the variables."""
        every = [*self.variables, *self.optimizer.variables]
        before = [variable.numpy() for variable in every]
        self.train(*rows, 0, steps)
        self.train(*rows, 0, steps)
        for variable, value in zip(every, before, strict=True):
            variable.assign(value)

    def evaluation(self, problem: Problem) -> Callable[[], float]:
        """A function that computes the test loss."""
        import tensorflow as tf

        x = dense(problem.test.x) if self.setting["form"] == "dense" else problem.test.x
        scores = tf.function(self.scores, reduce_retracing=True)

        def block(rows: slice) -> Any:
            part = as_tensors(x[rows])
            if isinstance(part, tuple):
                part = _batch(part, 0, part[2].shape[0] - 1)
            return scores(part).numpy()

        return lambda: loss_of(problem, block)


def _batch(x: Any, start: Any, size: Any) -> Any:
    """Rows `start` to `start + size` in the form that `scores` takes."""
    import tensorflow as tf

    if not isinstance(x, tuple):
        rows = x[start : start + size]
        return tf.ensure_shape(rows, (size, x.shape[1]))
    indices, values, indptr = x
    bounds = indptr[start : start + size + 1]
    row = tf.repeat(tf.range(size), bounds[1:] - bounds[:-1])
    stored = slice(bounds[0], bounds[-1])
    return indices[stored], values[stored], row, tf.constant(size)


def _sum_rows(weight: Any, indices: Any, values: Any, row: Any, size: Any) -> Any:
    """Sum of value times weight row, by row; the gradient covers only the used rows."""
    import tensorflow as tf

    if weight.shape[0] > MANY_FEATURES:
        picked = tf.gather(weight.value, indices) * values[:, None]
        return tf.math.unsorted_segment_sum(picked, row, size)
    places = tf.stack([tf.cast(row, tf.int64), tf.cast(indices, tf.int64)], axis=1)
    shape = tf.cast(tf.stack([size, weight.shape[0]]), tf.int64)
    return tf.sparse.sparse_dense_matmul(tf.SparseTensor(places, values, shape), weight.value)
