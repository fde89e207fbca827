"""Batches in stages, compared with `train`, with other orders of stages, and with plain NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import TOTALS
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.lsh import network as hashed
from hogbatch.kernels.cpu.lsh.neurons import step_neurons
from hogbatch.kernels.cpu.network import read
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.workers.compute.thread_state import thread_state
from tests.support.pairs import pairs
from tests.unit.simulate.rehearsal.conftest import (
    BATCH,
    KINDS,
    OF_TEAMS,
    batch_rows,
    given,
    settings,
    tables_of,
)

pytestmark = pytest.mark.no_own_indices  # the stages are parts of `train`
OPTIMIZERS = "sgd", "momentum", "adagrad", "adam"


class Batch:
    """A network with one thread, and a batch of it; equal arguments make equal batches."""

    def __init__(self, kind, optimizer="sgd"):
        self.given = given(kind, optimizer)
        self.state, self.tables = thread_state(self.given, 0), tables_of(self.given)
        self.layers, self.train_set = self.given.network.layer_views(), self.given.train
        has_tables = self.tables is not None
        self.loop = loop_for(self.layers, sparse=self.train_set.sparse, hashed=has_tables)
        self.totals = np.zeros(TOTALS)
        self.model, self.own = (self.state.model,), self.state.head
        self.lease, self.hyper = settings(self.given, threads=3)
        if has_tables:
            self.model = self.state.model, self.tables.finder(self.tables.current)
            self.own = self.tables.thread(self.state, BATCH)

    @property
    def data(self):
        return *self.model, self.train_set.inputs, self.train_set.labels

    def train(self, rows):
        rest = self.lease, self.hyper, self.own, self.given.fence, self.totals
        self.loop.train(*self.data, rows, *rest)

    def open(self, rows):
        self.rows = rows
        self.space = self.loop.open_batches(*self.data, rows, len(rows), self.own)
        self.hidden = getattr(self.space, "hidden", self.space)
        return self

    def run(self, first, stop, down=True):
        self.loop.run_stages(*self.arguments, first, stop, down)
        return self

    def read(self):
        read(*self.arguments)
        return self

    @property
    def arguments(self):
        return *self.data, self.rows, self.lease, self.hyper, self.space, self.totals

    def below(self, flat, layer):
        """The intermediates [B, K] below `layer`, of `flat`: activations or gradients."""
        start, size, width = self.hidden.starts[layer], len(self.rows), self.layers[layer].fan_in
        return flat[start : start + size * width].reshape(size, width).copy()

    def slopes(self):
        """The gradients of the scores, those of active outputs only if they are hashed."""
        if self.loop.name == "linear":
            return self.space.slopes.copy()
        if self.tables is not None:
            columns = -(-int(self.space.count[0]) // 16) * 16
            return self.space.neurons.grad[: len(self.rows) * columns].copy()
        if self.loop.name == "wide":
            return self.space.output.grad.copy()
        start, width = self.hidden.starts[len(self.layers)], self.layers[-1].fan_out
        return self.hidden.grads[start : start + len(self.rows) * width].copy()

    def move(self, *layers):
        """Change the parameters and slots of `layers`, as other threads do between two stages."""
        random, shared = np.random.default_rng(8), self.given.model
        for layer in layers:
            for tensor in self.given.network.tensors()[2 * layer :][:2]:  # padding stays zero
                tensor.view(shared.params)[:] += random.normal(size=tensor.shape)
                for slot in (shared.first, shared.second):
                    if slot.size:
                        tensor.view(slot)[:] += random.random(tensor.shape)
        return self

    def params(self):
        return self.given.model.params.copy()


@pairs(kind=KINDS, optimizer=OPTIMIZERS, way=["together", "one by one"])
def test_all_stages_are_a_batch_of_the_loop(kind, optimizer, way):
    compare_stages_with_the_loop(kind, optimizer, way)


@pairs(kind=OF_TEAMS, optimizer=OPTIMIZERS)
def test_gradients_followed_by_all_updates_are_a_batch_of_the_loop(kind, optimizer):
    compare_stages_with_the_loop(kind, optimizer, "gradients first")


def compare_stages_with_the_loop(kind, optimizer, way):
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
        other.train(batch_rows(number))
        assert_array_equal(one.totals, other.totals)
        for name in ("params", "first", "second", "steps"):
            assert_array_equal(getattr(one.given.model, name), getattr(other.given.model, name))
    if one.tables is not None:
        assert_array_equal(one.own.changed, other.own.changed)
        assert_array_equal(one.own.place, other.own.place)


@pytest.mark.parametrize("kind", KINDS)
def test_a_forward_stage_runs_on_the_weights_as_they_are_then(kind):
    last = len(Batch(kind).layers) - 1
    for layer in range(last + 1):
        late, early = Batch(kind).open(batch_rows(0)), Batch(kind).move(layer).open(batch_rows(0))
        plain = Batch(kind).open(batch_rows(0)).run(0, layer + 1)
        late.run(0, layer).move(layer).run(layer, layer + 1)
        early.run(0, layer + 1)
        found, expected, other = (
            each.slopes() if layer == last else each.below(each.hidden.activations, layer + 1)
            for each in (late, early, plain)
        )
        assert_array_equal(found, expected)
        assert (found != other).any()


@pytest.mark.parametrize("kind", ["dense", "sparse", "wide", "hashed"])
def test_a_backward_stage_passes_the_gradient_down_with_the_weights_as_they_are_then(kind):
    batch = Batch(kind).open(batch_rows(0))
    last, count = len(batch.layers) - 1, len(batch.rows)
    batch.run(0, last + 1)
    for stage, layer in enumerate(range(last, 0, -1), last + 1):
        view = batch.layers[layer]
        grad = batch.slopes() if layer == last else batch.below(batch.hidden.grads, layer + 1)
        weight, copied = (
            batch.given.network.tensors()[2 * layer],
            kind == "hashed" and layer == last,
        )
        before = batch.params() if copied else batch.move(layer).params()
        weights = before[weight.offset :][: np.prod(weight.stored)].reshape(weight.stored)
        if copied:  # with the scores: here the weights may change
            batch.move(layer)
            weights = weights[batch.space.active[: batch.space.count[0]]]
        grad = grad.reshape(count, -1)
        expected = grad[:, : len(weights)] @ weights if view.output_major else grad @ weights.T
        x = batch.below(batch.hidden.activations, layer)
        NUMPY_KERNELS.activate_backward(batch.layers[layer - 1].activation, x, expected)
        batch.run(stage, stage + 1)
        assert_allclose(batch.below(batch.hidden.grads, layer), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", OF_TEAMS)
def test_layers_are_updated_in_place_from_gradients_that_were_read_before(kind):
    """With SGD without weight decay, an update is the same at any weights."""
    changes, layers = [], len(Batch(kind).layers)
    for moved in (False, True):
        batch = Batch(kind)
        batch.hyper = batch.hyper._replace(l2=0.0)
        batch.open(batch_rows(0)).read()
        before = batch.move(*range(layers) if moved else ()).params()
        batch.run(layers, 2 * layers, down=False)
        changes.append(batch.params() - before)
    assert np.abs(changes[0]).max() > 1e-4
    assert_allclose(changes[1], changes[0], rtol=0, atol=2e-6)


def test_a_hashed_batch_that_ends_after_its_forward_passes_leaves_no_output_active():
    batch = Batch("hashed").open(batch_rows(0))
    batch.run(0, len(batch.layers))
    assert batch.space.count[0] > 0 and (batch.own.place == -1).all()


def test_an_output_updated_while_it_is_hashed_stays_marked(monkeypatch):
    batch = Batch("hashed").open(batch_rows(0))
    layers = len(batch.layers)
    batch.run(0, layers)
    x = batch.below(batch.hidden.activations, layers - 1)

    def step_while_hashed(*arguments):
        batch.own.changed[:] = 0  # as `hash_neurons` does before it reads the old weights
        step_neurons(*arguments)

    monkeypatch.setattr(hashed, "step_neurons", step_while_hashed)
    hashed.step_active.py_func(*batch.model, batch.lease.optimizer, batch.hyper, x, batch.space)
    active = batch.space.active[: batch.space.count[0]]
    assert_array_equal(np.flatnonzero(batch.own.changed), np.sort(active))
