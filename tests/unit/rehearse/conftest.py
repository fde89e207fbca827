"""Runs with few rows, in which several threads train at the same time."""

from dataclasses import replace

import msgspec
import numpy as np

from hogbatch.compute.hash_tables import HashTables
from hogbatch.compute.thread_state import thread_state
from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, TOTALS, Hyper
from hogbatch.kernels.cpu.delayed import delayed_loop
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.rehearse.concurrent_model import ConcurrentModel
from tests.support.assignments import assignment, examples, wide

ROWS, BATCH = 48, 5
KINDS = "dense", "sparse", "linear", "wide", "hashed"


def given(kind, optimizer="adagrad"):
    """An assignment for a network of this kind: a loop, or "sparse" for the dense loop on CSR."""
    if kind == "hashed":
        return wide(sparse=True, optimizer=optimizer)
    if kind == "wide":
        made = wide(sparse=True, optimizer=optimizer)
        return replace(made, welcome=msgspec.structs.replace(made.welcome, lsh=None))
    train = examples(ROWS, sparse=kind != "dense", several=kind == "sparse")
    hidden = () if kind == "linear" else (8, 16)
    made = assignment(train, hidden=hidden, optimizer=optimizer)
    rng = np.random.default_rng(2)
    for slots in (made.model.first, made.model.second):
        for tensor in made.network.tensors() if slots.size else ():
            tensor.view(slots)[:] = rng.random(tensor.shape)  # padding stays zero
    return made


def concurrent(given, *, alone=False):
    """The shared model of an assignment."""
    welcome = given.welcome
    return ConcurrentModel(
        *(given.model, given.network, given.train),
        lsh=welcome.lsh,
        alone=alone,
    )


def tables_of(given):
    """Hash tables of the weights as they are now; None if no layer is hashed."""
    if given.welcome.lsh is None:
        return None
    tables = HashTables(given)
    tables.rebuild()
    return tables


def settings(given, batch=BATCH, threads=3):
    """The arguments of a loop that do not depend on the rows."""
    loss, optimizer = given.network.loss, given.welcome.optimizer.name
    spec = given.welcome.optimizer
    lease = BatchSettings(batch, LOSSES[loss], OPTIMIZERS[optimizer], 0, threads)
    return lease, Hyper(0.05, 0.01, spec.momentum, spec.beta2, spec.epsilon)


def batch_rows(number, batch=BATCH):
    """The rows of a batch."""
    return np.random.default_rng((3, number)).integers(0, ROWS, batch)


class CopiedModel:
    """What ConcurrentModel computes, with a copy of the whole model for every batch."""

    def __init__(self, given):
        self.given = given
        self.tables = tables_of(given)
        self.layers = given.network.layer_views()
        hashed = self.tables is not None
        self.loop = loop_for(self.layers, sparse=given.train.sparse, hashed=hashed)
        self.delayed = delayed_loop(self.loop.name)

    def thread(self, number):
        return thread_state(self.given, number)

    def hashing(self, thread, batch):
        """The arguments of the kernels for hashed outputs."""
        if self.tables is None:
            return ()
        return self.tables.finder(self.tables.current), self.tables.thread(thread, batch)

    def begin(self, thread, rows, lease, hyper):
        """Return the gradients of a batch, and the arguments with which they are written."""
        train, model = self.given.train, self.given.model
        copies = [array.copy() for array in (model.params, model.first, model.second, model.steps)]
        names = "params", "first", "second", "steps"
        view = thread.model._replace(**dict(zip(names, copies, strict=True)))
        hashing = self.hashing(thread, lease.batch_size)
        begun = self.delayed.begin(
            *(view, train.inputs, train.labels, rows, lease, hyper, np.zeros(TOTALS), *hashing)
        )
        if self.delayed.write_outputs is None:
            begun = begun, None
        return thread, rows, lease, *begun, hashing

    def train(self, view, thread, rows, lease, hyper, totals):
        """Call the loop on the arrays of `view`."""
        train, model, own = self.given.train, (view,), thread.head
        if self.tables is not None:
            finder, own = self.hashing(thread, lease.batch_size)
            model = view, finder
        self.loop.train(
            *(*model, train.inputs, train.labels, rows, lease, hyper),
            *(own, self.given.fence, totals),
        )

    def apply(self, begun, layers=None):
        """Write the update of a batch: of all layers, or of `layers`."""
        thread, rows, lease, hidden, outputs, hashing = begun
        for layer in reversed(range(len(self.layers))) if layers is None else layers:
            if layer == len(self.layers) - 1 and outputs is not None:
                self.delayed.write_outputs(thread.model, lease, outputs, *hashing)
            else:
                inputs = self.given.train.inputs
                self.delayed.write(
                    *(thread.model, inputs, rows, lease, hidden, thread.head, layer, layer + 1)
                )
