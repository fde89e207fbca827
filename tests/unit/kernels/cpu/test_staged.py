"""Batches in stages, compared with `train` and with plain NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels import reference
from hogbatch.kernels.contract import SUMMED_SLOTS, TOTALS, Slots
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import corrected
from hogbatch.kernels.cpu.staged import staged_loop
from hogbatch.workers.compute.thread_state import thread_state
from tests.support.pairs import pairs
from tests.unit.simulate.rehearsal.conftest import (
    BATCH,
    KINDS,
    batch_rows,
    given,
    settings,
    tables_of,
)

OPTIMIZERS = "sgd", "momentum", "adagrad", "adam"


class Batch:
    """A network with one thread, and the arguments of a batch."""

    def __init__(self, kind, optimizer):
        self.given = given(kind, optimizer)
        self.state, self.tables = thread_state(self.given, 0), tables_of(self.given)
        self.layers = self.given.network.layer_views()
        self.loop = loop_for(
            self.layers, sparse=self.given.train.sparse, hashed=self.tables is not None
        )
        self.staged = staged_loop(self.loop.name)
        self.totals = np.zeros(TOTALS)
        self.model, self.own = (self.state.model,), self.state.head
        self.optimizer = settings(self.given)[0].optimizer
        if self.tables is not None:
            self.model = self.state.model, self.tables.finder(self.tables.current)
            self.own = self.tables.thread(self.state, BATCH)

    def train(self, number):
        train = self.given.train
        self.loop.train(
            *(*self.model, train.inputs, train.labels, batch_rows(number)),
            *(*settings(self.given, threads=3), self.own, self.given.fence, self.totals),
        )

    @property
    def data(self):
        train = self.given.train
        return train.inputs, train.labels, batch_rows(0)

    def open(self, rows=None):
        """Begin a batch of `rows`, or of batch 0."""
        self.rows = batch_rows(0) if rows is None else rows
        _, hyper = settings(self.given, threads=3)
        inputs, labels, _ = self.data
        self.kept = self.staged.open(*self.model, inputs, labels, self.rows, hyper)
        self.hidden = self.kept.hidden if self.wide else self.kept

    def run(self, first, stop, down=True):
        self.staged.run(*self.arguments, first, stop, down)

    def read(self):
        self.staged.read(*self.arguments)

    @property
    def arguments(self):
        (inputs, labels, _), (lease, _) = self.data, settings(self.given, threads=3)
        state = lease, self.totals, self.kept, self.own
        return *self.model, inputs, labels, self.rows, *state

    @property
    def wide(self):
        return self.loop.name in ("wide", "hashed")

    def kept_matrix(self, flat, layer, width):
        """The intermediates [B, width] below `layer`, of `flat`: activations or gradients."""
        start, size = self.hidden.starts[layer], len(self.rows)
        return flat[start : start + size * width].reshape(size, width)

    def x(self, layer):
        """The inputs of a layer."""
        view, (inputs, _, _) = self.layers[layer], self.data
        if layer > 0 or not self.given.train.sparse:
            if layer == 0:
                expected = np.zeros((len(self.rows), view.fan_in), np.float32)
                reference.gather(inputs, self.rows, expected)
                return expected
            return self.kept_matrix(self.hidden.activations, layer, view.fan_in)
        return None

    def grad(self, layer):
        """The gradient of the outputs of a layer, of active ones only if they are hashed."""
        if self.loop.name == "linear":
            return self.kept.slopes.reshape(-1, 1)
        if self.wide and layer == len(self.layers) - 1:
            grad = self.kept.grad.reshape(-1)
            if self.tables is None:
                return grad.reshape(len(self.rows), -1)
            columns = -(-int(self.kept.count[0]) // 16) * 16
            return grad[: len(self.rows) * columns].reshape(len(self.rows), columns)
        return self.kept_matrix(self.hidden.grads, layer + 1, self.layers[layer].fan_out)

    @property
    def active(self):
        return self.kept.active[: self.kept.count[0]]

    def tensors(self, layer):
        """Weights and bias of a layer, each as (parameters, Slots); they can be written to."""
        shared, found = self.given.model, []
        for tensor in self.given.network.tensors()[2 * layer :][:2]:
            cells = slice(tensor.offset, tensor.offset + np.prod(tensor.stored))
            slots = (
                array[cells] if array.size else array for array in (shared.first, shared.second)
            )
            shaped = Slots(*(s.reshape(tensor.stored) if s.size else s for s in slots))
            found.append((shared.params[cells].reshape(tensor.stored), shaped))
        return found


@pairs(kind=KINDS, optimizer=OPTIMIZERS, way=["together", "one by one", "gradients first"])
def test_all_stages_are_a_batch_of_the_loop(kind, optimizer, way):
    one, other = Batch(kind, optimizer), Batch(kind, optimizer)
    layers = len(one.layers)
    for number in range(6):
        one.open(batch_rows(number))
        if way == "together":
            one.run(0, 2 * layers)
        elif way == "one by one":
            for stage in range(2 * layers):
                one.run(stage, stage + 1)
        else:
            one.read()
            for stage in range(layers, 2 * layers):
                one.run(stage, stage + 1, down=False)
        other.train(number)
        assert_array_equal(one.totals, other.totals)
        for name in ("params", "first", "second", "steps"):
            assert_array_equal(getattr(one.given.model, name), getattr(other.given.model, name))
    if one.tables is not None:
        assert_array_equal(one.own.changed, other.own.changed)
        assert_array_equal(one.own.place, other.own.place)


def moved(batch):
    """Change the parameters and slots, as other threads do between two stages."""
    random, shared = np.random.default_rng(8), batch.given.model
    for tensor in batch.given.network.tensors():  # padding stays zero
        tensor.view(shared.params)[:] += random.normal(size=tensor.shape)
        for slot in (shared.first, shared.second):
            if slot.size:
                tensor.view(slot)[:] += random.random(tensor.shape)


def scored(batch, layer):
    """The outputs of a layer in plain NumPy, with the weights as they are now."""
    view, (inputs, _, _) = batch.layers[layer], batch.data
    (weights, _), (bias, _) = batch.tensors(layer)
    if view.output_major:
        weights = np.ascontiguousarray(weights.T)
    out = np.zeros((len(batch.rows), view.fan_out), np.float32)
    x = batch.x(layer)
    if x is None:
        reference.csr_forward(inputs, batch.rows, weights, bias, view.activation, view.width, out)
    else:
        reference.dense_forward(x, weights, bias, view.activation, view.width, None, out)
    return out


def loss_gradients(batch, scores):
    """The gradient of the scores in plain NumPy."""
    grad, (_, labels, _) = np.zeros_like(scores), batch.data
    loss, rows = settings(batch.given)[0].loss, batch.rows
    width = batch.layers[-1].width
    reference.loss_gradient(loss, labels, rows, rows, width, scores, grad, np.zeros(TOTALS))
    return grad


def passed_down(batch, layer):
    """The gradient below a layer in plain NumPy, with the weights as they are now."""
    (weights, _), _ = batch.tensors(layer)
    view, grad = batch.layers[layer], batch.grad(layer)
    if batch.tables is not None and layer == len(batch.layers) - 1:
        weights, grad = weights[batch.active], grad[:, : len(batch.active)]
    below = grad @ weights if view.output_major else grad @ weights.T
    kind = batch.layers[layer - 1].activation
    reference.activate_backward(kind, batch.x(layer), below)
    return below


def updated(batch, layer):
    """Return the weights and bias of a layer, with slots, after the update in plain NumPy."""
    rows, (csr, _, _) = batch.rows, batch.data
    lease, hyper = settings(batch.given, threads=3)
    kind, view, size = lease.optimizer, batch.layers[layer], len(rows)
    hyper = corrected(kind, hyper, int(batch.hidden.number[0]))
    (weights, slots), (bias, bias_slots) = [
        (cells.copy(), Slots(*(slot.copy() for slot in slots)))
        for cells, slots in batch.tensors(layer)
    ]
    hashed = batch.tables is not None and layer == len(batch.layers) - 1
    grad = batch.grad(layer).copy()
    chosen = batch.active if hashed else slice(None)
    if layer == 0 and batch.given.train.sparse:
        reference.csr_bound_rows(kind, hyper, csr, rows, grad)
        reference.csr_step(kind, hyper, csr, rows, grad, None, slots, weights)
    else:
        if kind in SUMMED_SLOTS and not hashed:
            hyper = hyper._replace(rate=hyper.rate / np.sqrt(lease.threads))
        x = batch.x(layer)
        reference.bound_rows(kind, hyper, size, x, grad)
        if hashed:
            grad = grad[:, : len(chosen)]
        gradient = grad.T @ x if view.output_major else x.T @ grad
        stepped, parts = weights[chosen], Slots(*(s[chosen] if s.size else s for s in slots))
        reference.step(kind, hyper, gradient, parts, stepped)
        put(chosen, weights, stepped, slots, parts)
    stepped, parts = bias[chosen], Slots(*(s[chosen] if s.size else s for s in bias_slots))
    reference.step(kind, hyper._replace(l2=0.0), grad.sum(axis=0), parts, stepped)
    put(chosen, bias, stepped, bias_slots, parts)
    return (weights, slots), (bias, bias_slots)


def put(chosen, weights, stepped, slots, parts):
    """Write stepped rows back."""
    weights[chosen] = stepped
    for slot, part in zip(slots, parts, strict=True):
        if slot.size:
            slot[chosen] = part


def assert_updated(batch, layer, expected):
    for (cells, slots), (right, known) in zip(batch.tensors(layer), expected, strict=True):
        assert_allclose(cells, right, rtol=1e-5, atol=2e-5)
        for slot, same in zip(slots, known, strict=True):
            assert_allclose(slot, same, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_stage_runs_on_the_model_as_it_is_then(kind, optimizer):
    batch = Batch(kind, optimizer)
    batch.open()
    last = len(batch.layers) - 1
    for layer in range(last + 1):
        moved(batch)
        scores = None if batch.tables is not None and layer == last else scored(batch, layer)
        batch.run(layer, layer + 1)
        if layer < last:
            kept = batch.kept_matrix(
                batch.hidden.activations, layer + 1, batch.layers[layer].fan_out
            )
            assert_allclose(kept, scores, rtol=1e-4, atol=1e-4)
        elif scores is not None:
            assert_allclose(batch.grad(last), loss_gradients(batch, scores), rtol=1e-3, atol=1e-4)
        else:  # the weights of active outputs are copied here
            below = batch.kept_matrix(batch.hidden.grads, last, batch.layers[last].fan_in)
            assert len(batch.active) > 0
            assert_allclose(below, passed_down(batch, last), rtol=1e-3, atol=1e-4)
    for stage, layer in enumerate(range(last, -1, -1), last + 1):
        moved(batch)
        expected, below = updated(batch, layer), None
        if layer > 0 and not (batch.tables is not None and layer == last):
            below = passed_down(batch, layer)
        batch.run(stage, stage + 1)
        assert_updated(batch, layer, expected)
        if below is not None:
            fan_in = batch.layers[layer].fan_in
            kept = batch.kept_matrix(batch.hidden.grads, layer, fan_in)
            assert_allclose(kept, below, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_layers_are_updated_in_place_from_gradients_that_were_read_before(kind, optimizer):
    batch = Batch(kind, optimizer)
    batch.open()
    batch.read()
    moved(batch)
    layers = len(batch.layers)
    expected = [updated(batch, layer) for layer in range(layers)]
    batch.run(layers, 2 * layers, down=False)
    for layer in range(layers):
        assert_updated(batch, layer, expected[layer])
