"""The gradient noise of some rows before a CPU worker trains on them, from NumPy products.

The gradient of row i for the weights of a layer is x_i d_iᵀ, where x_i are the inputs of the layer
and d_i is the gradient of its outputs. So the products of the gradients of all pairs of rows are
(X Xᵀ) ∘ (D Dᵀ), summed over the layers, and no gradient is stored. The mean product of two
different rows is an unbiased estimate of |G|², where G is the gradient of the loss, and the mean
square of a row is one of |G|² + tr Σ, where Σ is the covariance of the gradients of single rows
(McCandlish et al. 2018, "An Empirical Model of Large-Batch Training"). Weight decay is left out.

If the optimizer is ADAPTIVE, squares and products are divided by the root of the mean square s of
each weight's gradient, as steps are. s[k, h] is replaced by r_k c_h / m, from the sums of its rows,
its columns and all of it, as in Shazeer & Stern 2018, "Adafactor", so that X and D can be divided
instead. Of a sparse first layer, r, c and m are sums over the features of the measured rows.
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Inputs
from hogbatch.kernels.contract import ADAPTIVE, BIAS_CORRECTED, Floats, Rows
from hogbatch.kernels.dropout import key_of
from hogbatch.kernels.executor import Executor, Randomness, weights_of
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.kernels.reference_losses import quiet
from hogbatch.wire.messages import Lease
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.thread_state import ThreadState

SUMS: Final = 5  # see `noise_sums`
ROWS: Final = 256  # that are measured at once: the information grows with their square
FEWEST_ROWS: Final = 64
SCORES: Final = 1 << 22  # of the measured rows: networks with more outputs measure fewer rows
LARGEST_COST: Final = 0.008  # of the processor time of a thread, for measuring
SMALLEST: Final = np.finfo(np.float32).tiny
LARGEST: Final = 1e300
FIRST_SECONDS: Final = 0.005  # that the first measurement is expected to take


class NoiseMeter:
    """Measures the gradient noise for one thread or team, of which there are `teams`.

    Networks with a hashed output layer or with a backbone are not measured. `clock` returns the
    seconds of a thread. One that stands still meanwhile, as in rehearsals, lets each measurement
    take `expected` seconds; else these are the expected ones of the first measurement.
    """

    def __init__(
        self,
        assignment: Assignment,
        thread: ThreadState,
        teams: int,
        clock: Callable[[], float] = time.thread_time,
        expected: float = FIRST_SECONDS,
    ) -> None:
        self._assignment, self._model, self._teams = assignment, thread.model, teams
        network, params = assignment.network, thread.model.params
        left_out = network.backbone is not None or assignment.welcome.lsh is not None
        self._rows = 0 if left_out else min(ROWS, SCORES // network.outputs)
        self._views, none = network.layer_views(), params[:0]
        self._executor = Executor(NUMPY_KERNELS, np, self._views, params, none, none)
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
        sums = noise_sums(self.products(rows).astype(np.float64), self._assignment.train.rows)
        self._expected = self._clock() - now or self._expected
        self._spent += self._expected
        return sums if (np.abs(sums) < LARGEST).all() else None

    @quiet
    def products(self, rows: Rows) -> Floats:
        """The products [B, B] of the gradients of `rows`[B], summed over the layers."""
        train, (loss, optimizer) = self._assignment.train, self._assignment.kinds
        dropout, steps = self._assignment.dropout, int(self._model.steps[0])
        key = dropout and Randomness(dropout.fraction, key_of(dropout.seed, steps + 1))
        layers = self._executor.output_gradients(train.inputs, train.labels, rows, loss, key)
        total = np.zeros((len(rows), len(rows)), np.float32)
        for view, (x, grad) in zip(self._views, layers, strict=True):
            grad *= len(rows)  # from the mean to the loss of each row
            sparse, features = view == self._views[0] and train.sparse, None
            if sparse:
                x, features = touched_columns(train.inputs, rows)
            if optimizer not in ADAPTIVE:
                total += row_products(x, grad)
                continue
            slots, count = self._sums_of_squares(optimizer, steps, shared=sparse)
            weights, bias = weights_of(view, slots), slots[view.bias :][: view.fan_out]
            weights = weights.T if view.output_major else weights
            weights = weights if features is None else weights[features]
            total += np.float32(math.sqrt(count)) * row_products(x, grad, weights, bias)
        return total

    def _sums_of_squares(self, optimizer: int, steps: int, *, shared: bool) -> tuple[Floats, float]:
        """The slots [P] with the squares of gradients, and how many squares each is the sum of."""
        model = self._model
        if optimizer in BIAS_CORRECTED:
            own, count = model.own_second, 1.0 - self._assignment.hyper(0.0).beta2 ** steps
            return (model.second, count) if shared else (own, count)
        return (model.first, steps) if shared else (model.own_first, steps / self._teams)


def touched_columns(inputs: Inputs, rows: Rows) -> tuple[Floats, NDArray[np.int32]]:
    """Return x[B, n] of the n features that CSR `rows`[B] have, and their numbers."""
    members, positions = csr.cells(inputs.indptr, rows)
    features, columns = np.unique(inputs.indices[positions], return_inverse=True)
    x = np.zeros((len(rows), len(features)), np.float32)
    np.add.at(x, (members, columns), inputs.values[positions])
    return x, features


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


def noise_sums(products: NDArray[np.float64], rows: float) -> NDArray[np.float64]:
    """Return S, P, and the variances of S, of S and P, and of P, from products[B, B].

    S and P are sums over all pairs of measured rows: of the mean square of their gradients, and of
    what estimates |G|² without bias. This is the product of both gradients, plus 1 / N of the
    difference of the two, because G is the gradient of N = `rows` training rows, and a row is not
    drawn twice in an epoch. The variances are those of the jackknife: row i changes S by s_i and P
    by 2 p_i. That of P may be up to twice the true one, if it is that of single pairs (Efron &
    Stein 1981, "The Jackknife Estimate of Variance").
    """
    count, own = len(products), products.diagonal()
    pairs = products + ((own[:, None] + own) / 2 - products) / rows - np.diag(own)
    s, p = (count - 1) * own, pairs.sum(axis=1)
    of_s, of_p = s - s.mean(), 2 * (p - p.mean())
    return np.array([s.sum(), p.sum(), of_s @ of_s, of_s @ of_p, of_p @ of_p])
