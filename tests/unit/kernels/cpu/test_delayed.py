"""Batches whose updates are written later, compared with `train` and with plain NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.compute.thread_state import thread_state
from hogbatch.kernels import reference
from hogbatch.kernels.contract import SUMMED_SLOTS, TOTALS, Slots
from hogbatch.kernels.cpu.delayed import delayed_loop
from hogbatch.kernels.cpu.loops import loop_for
from tests.unit.rehearse.conftest import BATCH, KINDS, batch_rows, given, settings, tables_of

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
        self.delayed = delayed_loop(self.loop.name)
        self.totals = np.zeros(TOTALS)
        self.model, self.own, self.hashing = (self.state.model,), self.state.head, ()
        self.optimizer = settings(self.given)[0].optimizer
        if self.tables is not None:
            self.model = self.state.model, self.tables.finder(self.tables.current)
            self.own = self.tables.thread(self.state, BATCH)
            self.hashing = self.model[1], self.own

    def train(self, number):
        train = self.given.train
        self.loop.train(
            *(*self.model, train.inputs, train.labels, batch_rows(number)),
            *(*settings(self.given, threads=3), self.own, self.given.fence, self.totals),
        )

    def begin(self, number):
        """Return what `write` needs, and what `write_outputs` needs, or None."""
        train = self.given.train
        begun = self.delayed.begin(
            *(self.model[0], train.inputs, train.labels, batch_rows(number)),
            *(*settings(self.given, threads=3), self.totals, *self.hashing),
        )
        return begun if self.delayed.write_outputs is not None else (begun, None)

    def write(self, number, begun, outputs):
        lease, layers = settings(self.given, threads=3)[0], len(self.layers)
        if outputs is not None:
            self.delayed.write_outputs(self.model[0], lease, outputs, *self.hashing)
            layers -= 1
        self.delayed.write(
            *(self.model[0], self.given.train.inputs, batch_rows(number), lease, begun),
            *(self.state.head, 0, layers),
        )

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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_begun_and_written_at_once_it_is_a_batch_of_the_loop(kind, optimizer):
    one, other = Batch(kind, optimizer), Batch(kind, optimizer)
    for number in range(6):
        one.write(number, *one.begin(number))
        other.train(number)
        assert_array_equal(one.totals, other.totals)
        for name in ("params", "first", "second", "steps"):
            assert_array_equal(getattr(one.given.model, name), getattr(other.given.model, name))
    if one.tables is not None:
        assert_array_equal(one.own.changed, other.own.changed)
        assert_array_equal(one.own.place, other.own.place)


def moved(batch):
    """Change the parameters and slots, as other threads do between begin and write."""
    random, shared = np.random.default_rng(8), batch.given.model
    for tensor in batch.given.network.tensors():  # padding stays zero
        tensor.view(shared.params)[:] += random.normal(size=tensor.shape)
        for slot in (shared.first, shared.second):
            if slot.size:
                tensor.view(slot)[:] += random.random(tensor.shape)


def written_later(batch, layer, begun, outputs):
    """Return the weights and bias of a layer, with slots, after the update in plain NumPy."""
    rows, csr = batch_rows(0), batch.given.train.inputs
    lease, _ = settings(batch.given, threads=3)
    kind, hyper, view = lease.optimizer, begun.hyper, batch.layers[layer]
    size = len(rows)
    (weights, slots), (bias, bias_slots) = [
        (cells.copy(), Slots(*(slot.copy() for slot in slots)))
        for cells, slots in batch.tensors(layer)
    ]
    last = layer == len(batch.layers) - 1
    if batch.loop.name == "linear":
        grad = begun.slopes.reshape(size, 1).copy()
    elif last and outputs is not None:
        grad = outputs.grad.copy()
    else:
        start = begun.starts[layer + 1]
        grad = begun.grads[start : start + size * view.fan_out].reshape(size, -1).copy()
    if layer == 0 and batch.given.train.sparse:
        reference.csr_bound_rows(kind, hyper, csr, rows, grad)
        reference.csr_step(kind, hyper, csr, rows, grad, None, slots, weights)
    else:
        if kind in SUMMED_SLOTS and not (last and batch.tables is not None):
            hyper = hyper._replace(rate=hyper.rate / np.sqrt(lease.threads))
        start = begun.starts[layer]
        x = begun.activations[start : start + size * view.fan_in].reshape(size, -1)
        reference.bound_rows(kind, hyper, size, x, grad)
        gradient = grad.T @ x if view.output_major else x.T @ grad
        if batch.tables is not None and last:
            chosen = outputs.active
            gradient, grad = gradient[: len(chosen)], grad[:, : len(chosen)]
        else:
            chosen = slice(None)
        stepped, parts = weights[chosen], Slots(*(s[chosen] if s.size else s for s in slots))
        reference.step(kind, hyper, gradient, parts, stepped)
        put(chosen, weights, stepped, slots, parts)
    chosen = outputs.active if batch.tables is not None and last else slice(None)
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_layers_are_updated_in_place_from_the_gradients_of_the_beginning(kind, optimizer):
    batch = Batch(kind, optimizer)
    begun, outputs = batch.begin(0)
    moved(batch)
    layers = range(len(batch.layers))
    expected = [written_later(batch, layer, begun, outputs) for layer in layers]
    batch.write(0, begun, outputs)
    for layer in layers:
        for (cells, slots), (right, known) in zip(
            batch.tensors(layer), expected[layer], strict=True
        ):
            assert_allclose(cells, right, rtol=1e-5, atol=1e-5)
            for slot, same in zip(slots, known, strict=True):
                assert_allclose(slot, same, rtol=1e-5, atol=1e-5)
