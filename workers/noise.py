"""The gradient noise of some rows before a worker trains on them, from NumPy products.

The gradient of row i for the weights of a layer is x_i d_iᵀ, where x_i are the inputs of the layer
and d_i is the gradient of its outputs. So the products of the gradients of all pairs of rows are
(X Xᵀ) ∘ (D Dᵀ), summed over the layers, and no gradient is stored. The mean product of two
different rows is an unbiased estimate of |G|², where G is the gradient of the loss, and the mean
square of a row is one of |G|² + tr Σ, where Σ is the covariance of the gradients of single rows
(McCandlish et al. 2018, "An Empirical Model of Large-Batch Training"). Weight decay is left out.

If the optimizer is ADAPTIVE, squares and products are divided by the root of the mean square s of
each weight's gradient, as steps are. s[k, h] is replaced by r_k c_h / m, from the sums of its rows,
its columns and all of it, as in Shazeer & Stern 2018, "Adafactor", so that X and D can be divided
instead. Of a sparse first layer, r, c and m are sums over the features of the measured rows, and of
a hashed output layer, over their active outputs.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Inputs, Labels
from hogbatch.data.order import take
from hogbatch.kernels.contract import ADAPTIVE, BIAS_CORRECTED, Floats, Rows
from hogbatch.kernels.dropout import factor, key_of
from hogbatch.kernels.executor import Executor, Randomness, weights_of
from hogbatch.kernels.layers import LayerView
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.kernels.reference_losses import quiet
from hogbatch.wire.messages import Lease
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.replica import Replica

SUMS: Final = 5  # see `noise_sums`
ROWS: Final = 256  # that are measured at once: the information grows with their square
FEWEST_ROWS: Final = 64
SCORES: Final = 1 << 22  # of the measured rows: networks with more outputs measure fewer rows
LARGEST_COST: Final = 0.008  # of the seconds of a thread or GPU worker, for measuring
SMALLEST: Final = np.finfo(np.float32).tiny
LARGEST: Final = 1e300
FIRST_SECONDS: Final = 0.005  # that the first measurement is expected to take
ALL: Final = slice(None)


class MeasuredLayer(NamedTuple):
    """A layer with its inputs x[B, K] and the gradients grad[B, H] of its outputs."""

    view: LayerView
    x: Floats
    grad: Floats
    inputs: Any = ALL  # the features that the columns of x stand for, if inputs are sparse
    outputs: Any = ALL  # the outputs that the columns of `grad` stand for, if they are hashed


class NoiseMeter:
    """Measures the gradient noise for one thread or team, of which there are `teams`.

    `model` is a ModelView. Networks with a backbone are not measured, nor are those with a hashed
    output layer without `find`. That returns the active outputs of a batch, on which the gradients
    of its rows depend: the label of one row is a competitor in all others, so products of two rows
    of a batch are too low. Those of different batches are not.

    `clock` returns the seconds of a thread. One that stands still meanwhile, as in rehearsals, lets
    each measurement take `expected` seconds; else these are the expected ones of the first one.
    """

    def __init__(
        self,
        assignment: Assignment,
        model: Any,
        teams: int = 1,
        find: Callable[[Floats, Rows], NDArray[np.int32]] | None = None,
        clock: Callable[[], float] = time.thread_time,
        expected: float = FIRST_SECONDS,
    ) -> None:
        self._assignment, self._model, self._teams = assignment, model, teams
        network, none, hashed = assignment.network, model.params[:0], assignment.welcome.lsh
        left_out = network.backbone is not None or (hashed is not None and find is None)
        most = min(ROWS, SCORES // network.outputs) if find is None else ROWS
        self._rows = 0 if left_out else most
        self._views, self._find = network.layer_views(), find
        self._corrected = assignment.kinds[1] in BIAS_CORRECTED
        views = self._views if find is None else self._views[:-1]
        self._executor = Executor(NUMPY_KERNELS, np, views, model.params, none, none)
        self._clock, self._began, self._spent, self._expected = clock, clock(), 0.0, expected

    @quiet
    def measure(self, lease: Lease, start: int) -> NDArray[np.float64] | None:
        """Measure the rows from `start` on in the order of a training lease, if it is time to.

        Returns the result of `noise_sums`; None if nothing was measured, or if a sum is too large.
        """
        rows = self._assignment.orders.row_order(lease.epoch)[start : start + self._rows]
        now = self._clock()
        due = LARGEST_COST * (now - self._began) >= self._spent + self._expected
        if not due or len(rows) < FEWEST_ROWS:
            return None
        size = 1 if self._find is None else min(lease.batch_size, len(rows) // 2)
        products = self.products(rows, size).astype(np.float64)
        sums = noise_sums(products, self._assignment.train.rows, size)
        self._expected = self._clock() - now or self._expected
        self._spent += self._expected
        return sums if (np.abs(sums) < LARGEST).all() else None

    @quiet
    def products(self, rows: Rows, size: int = 1) -> Floats:
        """The products [B, B] of the gradients of `rows`[B], summed over the layers.

        Each `size` of them are a batch, with its own active outputs if there is a `find`.
        """
        steps = int(self._model.steps[0])
        squares = self._squares(steps) if self._assignment.kinds[1] in ADAPTIVE else None
        total = np.zeros((len(rows), len(rows)), np.float32)
        for view, x, grad, inputs, outputs in self._layers(rows, size, steps):
            grad *= len(rows)  # from the mean to the loss of each row
            if squares is None:
                total += row_products(x, grad)
                continue
            slots, count = squares[inputs is not ALL or outputs is not ALL]
            weights, bias = weights_of(view, slots), slots[view.bias :][: view.fan_out][outputs]
            weights = weights[outputs].T if view.output_major else weights[inputs]
            total += np.float32(math.sqrt(count)) * row_products(x, grad, weights, bias)
        return total

    def _layers(self, rows: Rows, size: int, steps: int) -> list[MeasuredLayer]:
        """The layers of `rows`[B] in the next update after `steps`.

        They have only the features and the hashed outputs that the rows use.
        """
        train, (loss, _) = self._assignment.train, self._assignment.kinds
        dropout, hashed = self._assignment.dropout, list[MeasuredLayer]()
        random = dropout and Randomness(dropout.fraction, key_of(dropout.seed, steps + 1))
        common = loss, train.labels, rows, rows, self._views[-1].width
        differentiate: Any = partial(NUMPY_KERNELS.loss_gradient, *common)
        if self._find is not None:
            differentiate = partial(self._differentiate_active, rows, size, random, hashed)
        found = self._executor.output_gradients(train.inputs, rows, differentiate, random)
        layers = list(map(MeasuredLayer, self._views, *zip(*found, strict=True)))
        if train.sparse:
            x, features = touched_columns(train.inputs, rows)
            layers[0] = layers[0]._replace(x=x, inputs=features)
        return layers + hashed

    def _differentiate_active(
        self,
        rows: Rows,
        size: int,
        random: Randomness | None,
        hashed: list[MeasuredLayer],
        x: Floats,
        below: Floats,
        totals: NDArray[np.float64],
    ) -> None:
        """below[B, K] = the gradients of x[B, K]; add the output layer to `hashed`."""
        assert self._find is not None
        index, params, (loss, _) = len(self._views) - 1, self._model.params, self._assignment.kinds
        view, lower = self._views[index], self._views[index - 1]
        if random is not None:
            NUMPY_KERNELS.drop(random.fraction, random.key, index - 1, rows, lower.width, x)
        parts = [slice(start, start + size) for start in range(0, len(rows), size)]
        active = [self._find(x[part], rows[part]) for part in parts]
        every = np.unique(np.concatenate(active))
        grad = np.zeros((len(rows), len(every)), np.float32)
        for part, own in zip(parts, active, strict=True):
            weights, each = weights_of(view, params)[own], np.arange(len(rows[part]))
            scores = x[part] @ weights.T + params[view.bias :][own]
            slopes = np.zeros_like(scores)
            if len(own):
                labels = labels_among(self._assignment.train.labels, rows[part], own)
                given = loss, labels, each, each, len(own), scores, slopes, totals
                NUMPY_KERNELS.loss_gradient(*given)
            slopes *= len(each) / len(rows)  # of the mean over all rows
            grad[part, np.searchsorted(every, own)] = slopes
            np.matmul(slopes, weights, out=below[part])
        NUMPY_KERNELS.activate_backward(lower.activation, x, below)
        below *= 1.0 if random is None else factor(random.fraction)
        hashed.append(MeasuredLayer(view, x, grad, outputs=every))

    def _squares(self, steps: int) -> tuple[tuple[Floats, float], tuple[Floats, float]]:
        """The slots [P] with the squares of gradients, and how many squares each is the sum of.

        The first ones are of this team, the second ones are shared by all teams.
        """
        model = self._model
        if self._corrected:
            count = 1.0 - self._assignment.hyper(0.0).beta2 ** steps
            return (model.own_second, count), (model.second, count)
        return (model.own_first, steps / self._teams), (model.first, steps)


class ReplicaNoiseMeter(NoiseMeter):
    """Measures for a GPU worker: on the host, with the shared parameters and the replica's slots.

    The slots are copied from the device by the thread that measures, while it trains.
    """

    def __init__(self, assignment: Assignment, replica: Replica) -> None:
        super().__init__(assignment, assignment.model, clock=time.perf_counter)
        self._replica = replica

    def _squares(self, steps: int) -> tuple[tuple[Floats, float], tuple[Floats, float]]:
        steps, slots = self._replica.steps, self._replica.slots[self._corrected]
        host = np.empty(slots.shape, slots.dtype)
        self._replica.device.to_host(slots, host)
        own = host, 1.0 - self._assignment.hyper(0.0).beta2 ** steps if self._corrected else steps
        return own, own


def touched_columns(inputs: Inputs, rows: Rows) -> tuple[Floats, NDArray[np.int32]]:
    """Return x[B, n] of the n features that CSR `rows`[B] have, and their numbers."""
    members, positions = csr.cells(inputs.indptr, rows)
    features, columns = np.unique(inputs.indices[positions], return_inverse=True)
    x = np.zeros((len(rows), len(features)), np.float32)
    np.add.at(x, (members, columns), inputs.values[positions])
    return x, features


def labels_among(labels: Labels, rows: Rows, active: NDArray[np.int32]) -> Labels:
    """Return the labels of `rows`[B] as positions in active[A], which ascends and has them all."""
    own = take(labels, rows)
    if len(own.indptr):
        return own._replace(indices=np.searchsorted(active, own.indices).astype(np.int32))
    return own._replace(values=np.searchsorted(active, own.values).astype(np.float32))


def row_products(
    x: Floats, grad: Floats, squares: Floats | None = None, bias_squares: Floats | None = None
) -> Floats:
    """Return the products [B, B] of the gradients of a layer, from x[B, K] and grad[B, H].

    They are over the roots of `squares`[K, H] and `bias_squares`[H], if these are given. What has
    had no gradient is left out.
    """
    if squares is None or bias_squares is None:
        return (x @ x.T + 1) * (grad @ grad.T)
    by_input, by_output = squares.sum(axis=1), squares.sum(axis=0) + bias_squares
    left, right = x * _factor(by_input), grad * _factor(by_output)
    bias = _factor(bias_squares.sum()) ** 2
    products: Floats = np.sqrt(by_output.sum()) * (left @ left.T + bias) * (right @ right.T)
    return products


def _factor(squares: Any) -> Floats:
    factor: Floats = np.where(squares > 0, np.maximum(squares, SMALLEST) ** -0.25, 0)
    return factor


def noise_sums(products: NDArray[np.float64], rows: float, size: int = 1) -> NDArray[np.float64]:
    """Return S, P, and the variances of S, of S and P, and of P, from products[B, B].

    S and P are sums over all pairs of measured rows from different batches, which have `size` rows:
    of the mean square of their gradients, and of what estimates |G|² without bias. This is the
    product of both gradients, plus 1 / N of the difference of the two, because G is the gradient of
    N = `rows` training rows, and a row is not drawn twice in an epoch. The variances are those of
    the jackknife: row i changes S by s_i and P by 2 p_i. That of P may be up to twice the true one,
    if it is that of single pairs (Efron & Stein 1981, "The Jackknife Estimate of Variance").
    """
    own, batch = products.diagonal(), np.arange(len(products)) // size
    apart = batch[:, None] != batch
    pairs = apart * (products + ((own[:, None] + own) / 2 - products) / rows)
    s, p = apart.sum(axis=1) * own, pairs.sum(axis=1)
    of_s, of_p = s - s.mean(), 2 * (p - p.mean())
    return np.array([s.sum(), p.sum(), of_s @ of_s, of_s @ of_p, of_p @ of_p])
