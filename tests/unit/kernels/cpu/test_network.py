"""The compiled loops train and evaluate a lease as the interpreted loop does batch by batch.

Meant to pass without the JIT too (NUMBA_DISABLE_JIT=1), where it makes fewer updates.
"""

from dataclasses import replace
from itertools import chain

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch import kernels
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import dense_inputs
from hogbatch.kernels.contract import (
    LOSS,
    LOSSES,
    METRIC_SUMS,
    ROWS,
    SKIPPED,
    SKIPPED_ROW,
    TOTALS,
    UPDATES,
    Hyper,
)
from hogbatch.kernels.cpu import network as compiled
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings, ModelView, layer_table
from hogbatch.kernels.executor import Executor as Interpreted, corrected
from hogbatch.model.network import Network
from tests.support import plain_sgd
from tests.support.kernel_cases import (
    FORMS,
    csr_set,
    dense_set,
    labels_for,
    read_only,
    score_width,
    toarray,
)
from tests.support.pairs import pairs

FEATURES, OUTPUTS, SET = 9, 5, 40
BATCH, RAGGED = 4, 3  # rows of a batch, and of the last
COMPILED = not numba.config.DISABLE_JIT
STEPS = 200 if COMPILED else 20
FENCE = 5
RATES = {"sgd": 0.05, "momentum": 0.01, "adagrad": 0.05, "adam": 0.01}
HIDDEN = {(): "relu", (24,): "relu", (20, 12): "sigmoid"}

AXES = {"optimizer": list(OPTIMIZERS), "loss": list(LOSSES), "hidden": list(HIDDEN)}
forms = pytest.mark.parametrize("sparse", FORMS.values(), ids=FORMS)


class Case:
    """A network, its data and its optimizer's state; the same arguments make the same numbers."""

    def __init__(self, loss="softmax", optimizer="sgd", sparse=False, hidden=(24,), rows=SET):
        random = np.random.default_rng(11)
        activation, outputs = HIDDEN[hidden], score_width(LOSSES[loss], OUTPUTS)
        self.network = Network.build(FEATURES, hidden, outputs, activation, loss)
        self.params = np.zeros(self.network.parameters, np.float32)
        for tensor in self.network.tensors():
            tensor.view(self.params)[...] = random.normal(0, 0.5, tensor.shape)
        self.inputs = (csr_set if sparse else dense_set)(random, FEATURES, rows)
        for cells in (self.inputs.values, self.inputs.dense):
            cells /= 4  # within 1, as standardised features are
        self.labels = labels_for(random, LOSSES[loss], outputs, rows)
        self.loss, self.spec = LOSSES[loss], OPTIMIZERS[optimizer]
        size = self.params.size
        self.slots = [np.zeros(size if n < self.spec.slots else 0, np.float32) for n in range(2)]
        self.steps = np.zeros(1, np.int64)
        self.totals = np.zeros(TOTALS)
        self.order = random.integers(0, rows, STEPS * BATCH - BATCH + RAGGED)
        self.hyper = Hyper(
            RATES[optimizer], 0.01, self.spec.momentum, self.spec.beta2, self.spec.epsilon
        )
        self.head = np.full(self.network.layer_views()[0].fan_in, -1, np.int32)
        self.fence = np.full(8, FENCE)

    @property
    def loop(self):
        """The loop that a worker would run."""
        sparse = len(self.inputs.indptr) > 0
        return loop_for(self.network.layer_views(), sparse=sparse, hashed=False)

    def interpret(self):
        """Train on the reference backend, one batch at a time."""
        network = self._interpreted()
        for t, start in enumerate(range(0, len(self.order), BATCH), 1):
            hyper = corrected(self.spec.kind, self.hyper, t)
            rows = self.order[start : start + BATCH]
            network.train_batch(
                self.inputs, self.labels, rows, self.loss, self.spec.kind, hyper, self.totals
            )
            self.totals[[ROWS, UPDATES]] += len(rows), 1
        return self

    def compile(self, batch=BATCH):
        """Train by the compiled loop, all rows in one call."""
        self.loop.train(
            self._model(),
            *self.rows,
            self.order,
            self._lease(batch),
            self.hyper,
            self.head,
            self.fence,
            self.totals,
        )
        return self

    def evaluate_interpreted(self):
        self._interpreted().evaluate_batch(
            self.inputs, self.labels, self.order, self.loss, self.totals
        )
        self.totals[ROWS] += len(self.order)
        return self.totals

    def evaluate_compiled(self):
        lease = self._lease(BATCH)
        self.loop.evaluate(self._model(), *self.rows, self.order, lease, self.fence, self.totals)
        return self.totals

    @property
    def rows(self):
        """Inputs and labels as the compiled loops get them."""
        return read_only(self.inputs), read_only(self.labels)

    def _interpreted(self):
        layers = self.network.layer_views()
        return Interpreted(kernels.load("reference"), np, layers, self.params, *self.slots)

    def _model(self):
        table = layer_table(self.network.layer_views())
        return ModelView(table, self.params, *self.slots, self.steps, *self.slots)

    def _lease(self, batch):
        return BatchSettings(batch, self.loss, self.spec.kind, FENCE, 1)


@pytest.mark.vector_width
@pairs(**AXES, sparse=FORMS)
def test_a_lease_trains_as_its_batches_on_the_reference(optimizer, loss, sparse, hidden):
    fast, slow = (Case(loss, optimizer, sparse, hidden) for _ in range(2))
    start = fast.params.copy()
    fast.compile(), slow.interpret()
    assert np.abs(slow.params - start).max() > 0.01  # it did train
    assert_allclose(fast.params, slow.params, rtol=0, atol=1e-5)
    assert_allclose(fast.totals, slow.totals, rtol=1e-5)
    assert fast.totals[ROWS] == len(fast.order) and fast.totals[UPDATES] == STEPS == fast.steps[0]
    for ours, theirs in zip(fast.slots, slow.slots, strict=True):
        assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
@forms
def test_a_lease_evaluates_as_the_reference(loss, sparse):
    fast, slow = (Case(loss, sparse=sparse) for _ in range(2))
    start = fast.params.copy()
    assert_allclose(fast.evaluate_compiled(), slow.evaluate_interpreted(), rtol=1e-5)
    assert fast.totals[ROWS] == len(fast.order) and fast.totals[METRIC_SUMS] > 0
    assert_array_equal(fast.params, start)


@pairs(**AXES | {"loss": list(plain_sgd.GRADIENTS)})
def test_a_lease_trains_as_the_textbook_formula(optimizer, loss, hidden):
    # A weight whose feature does not occur in a batch is not changed, where the textbook's momentum
    # would move it: the two agree on sparse inputs only for optimizers without momentum.
    for sparse in (False, True) if optimizer in ("sgd", "adagrad") else (False,):
        case = Case(loss, optimizer, sparse, hidden)
        # A large epsilon, so that rounding does not decide the sign of a step.
        case.spec = replace(case.spec, epsilon=1e-3)
        case.hyper = case.hyper._replace(l2=0.0, epsilon=1e-3)
        dense = toarray(case.inputs, FEATURES) if sparse else case.inputs.dense
        batches = [
            (dense[rows].astype(float), case.labels.values[rows])
            for rows in np.split(case.order, range(BATCH, len(case.order), BATCH))
        ]
        layers = plain_sgd.layers_of(case.network.from_stored(case.params))
        rate = RATES[optimizer]
        plain_sgd.train(layers, HIDDEN[hidden], loss, batches, case.spec, rate)
        trained = plain_sgd.layers_of(case.compile().network.from_stored(case.params))
        for ours, theirs in zip(*map(chain.from_iterable, (trained, layers)), strict=True):
            assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@forms
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_an_outlier_is_bounded_as_on_the_reference(optimizer, sparse):
    fast, slow = (Case(optimizer=optimizer, sparse=sparse) for _ in range(2))
    for case in (fast, slow):
        cells = case.inputs.values[case.inputs.indptr[-2] :] if sparse else case.inputs.dense[-1]
        cells *= 100  # the last row, which is full
        case.order = np.array([1, SET - 1, 2, 3])
    fast.compile(), slow.interpret()
    assert_allclose(fast.params, slow.params, rtol=1e-3, atol=1e-4)


def test_one_of_four_threads_scales_its_own_sums_of_squares_by_four():
    alone, among = (Case(optimizer="adagrad") for _ in range(2))
    alone.hyper = alone.hyper._replace(rate=alone.hyper.rate / 2)
    alone.compile()
    lease = BatchSettings(BATCH, among.loss, among.spec.kind, FENCE, 4)
    own = np.zeros_like(among.slots[0])
    model = among._model()._replace(own_first=own)
    rows, totals = among.order, among.totals
    compiled.train(
        model, among.inputs, among.labels, rows, lease, among.hyper, among.head, among.fence, totals
    )
    assert_allclose(among.params, alone.params, rtol=0, atol=1e-6)
    assert own.any() and not among.slots[0].any()


@forms
def test_a_raised_fence_stops_a_lease_before_its_first_row(sparse):
    case = Case(sparse=sparse, optimizer="adam")
    case.fence[0] += 1
    before = case.params.copy()
    case.compile()
    case.evaluate_compiled()
    assert_array_equal(case.params, before)
    assert not case.totals.any() and case.steps[0] == 0


@forms
def test_only_the_first_word_of_a_fence_line_counts(sparse):
    case = Case(sparse=sparse)
    case.fence[1:] = -1
    assert case.compile().totals[ROWS] == len(case.order)


# The readers refuse stored values that are nan: only dense inputs can contain one.
@pytest.mark.parametrize(
    ("sparse", "poison"), [(False, np.nan), (False, np.inf), (False, 3e38), (True, 3e38)]
)
@pytest.mark.parametrize("hidden", [(), (24,)], ids=["linear", "deep"])
def test_rows_that_are_not_finite_are_counted_and_leave_the_model_finite(hidden, sparse, poison):
    case = Case("squared", "momentum", sparse, hidden)
    bad = SET - 1  # of a sparse set the full row
    if sparse:
        case.inputs.values[case.inputs.indptr[bad] :] = poison
    else:
        case.inputs.dense[bad] = poison
    case.order[5] = bad
    with np.errstate(over="ignore", invalid="ignore"):  # NumPy warns where the JIT does not
        case.compile()
    assert case.totals[SKIPPED] == np.count_nonzero(case.order == bad)
    assert case.totals[SKIPPED_ROW] == bad + 1
    assert case.totals[ROWS] == len(case.order)
    assert np.isfinite(case.params).all() and np.isfinite(case.totals[LOSS])
    assert all(np.isfinite(slot).all() for slot in case.slots)
    assert (case.head == -1).all()


@forms
def test_a_lease_leaves_no_links_behind(sparse):
    case = Case(sparse=sparse).compile()
    assert (case.head == -1).all()


@forms
@pytest.mark.parametrize("batch", [1, 7, 64, 10_000])
def test_any_batch_size_covers_every_row(sparse, batch):
    case = Case(sparse=sparse)
    case.order = case.order[:25]
    case.compile(batch)
    assert case.totals[ROWS] == 25 and case.totals[UPDATES] == -(-25 // batch)


@forms
def test_rows_without_a_stored_value_train_the_bias(sparse):
    case = Case("squared", sparse=sparse, hidden=())
    empty = 0  # of a sparse set the row without values
    if not sparse:
        case.inputs = dense_inputs(case.inputs.dense * 0)
    case.order = np.full(8, empty)
    case.labels.values[:] = 4
    before = case.network.from_stored(case.params.copy())["layers.0.bias"]
    after = case.compile().network.from_stored(case.params)["layers.0.bias"]
    assert abs(after - 4) < abs(before - 4)


@pytest.mark.skipif(not COMPILED, reason="there are no signatures without the JIT")
def test_each_kernel_is_compiled_once_for_dense_and_sparse_leases():
    first = Case(optimizer="sgd", sparse=False).compile()
    first.evaluate_compiled()
    kernels = compiled.train, compiled.evaluate
    known = [len(kernel.signatures) for kernel in kernels]  # other tests have read-only arrays
    for sparse in (False, True):
        for optimizer in OPTIMIZERS:
            Case(optimizer=optimizer, sparse=sparse).compile().evaluate_compiled()
    assert [len(kernel.signatures) for kernel in kernels] == known
