"""Runs with few rows, in which several threads train at the same time."""

from dataclasses import replace

import msgspec
import numpy as np

from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, TOTALS, Hyper
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.kernels.cpu.staged import staged_loop
from hogbatch.simulate.rehearsal.concurrent_model import ConcurrentModel
from hogbatch.workers.compute.hash_tables import HashTables
from hogbatch.workers.compute.thread_state import thread_state
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


def concurrent(given, *, alone=False, interleave="layer"):
    """The shared model of an assignment."""
    welcome = given.welcome
    return ConcurrentModel(
        *(given.model, given.network, given.train),
        lsh=welcome.lsh,
        alone=alone,
        interleave=interleave,
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
    """What ConcurrentModel computes, with a copy of the whole model for every stage.

    A stage runs on the copy; what it changed is then written back.
    """

    def __init__(self, given):
        self.given = given
        self.tables = tables_of(given)
        self.layers = given.network.layer_views()
        hashed = self.tables is not None
        self.loop = loop_for(self.layers, sparse=given.train.sparse, hashed=hashed)
        self.staged = staged_loop(self.loop.name)

    def thread(self, number):
        return thread_state(self.given, number)

    def batch(self, thread, rows, lease, hyper):
        return CopiedBatch(self, thread, rows, lease, hyper)

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

    def hashing(self, thread, batch):
        """The arguments of the kernels for hashed outputs."""
        return self.tables.finder(self.tables.current), self.tables.thread(thread, batch)


class CopiedBatch:
    """A batch of a CopiedModel."""

    def __init__(self, model, thread, rows, lease, hyper):
        self.model, self.given, self.stages = model, model.given, 2 * len(model.layers)
        self.thread, self.own, self.finder = thread, thread.head, ()
        if model.tables is not None:
            finder, self.own = model.hashing(thread, lease.batch_size)
            self.finder = (finder,)
        train = self.given.train
        self.data, self.lease = (train.inputs, train.labels, rows), lease
        self.totals, self.done = np.zeros(TOTALS), 0
        self.kept = model.staged.open(thread.model, *self.finder, *self.data, hyper)

    def arguments(self, view):
        return view, *self.finder, *self.data, self.lease, self.totals, self.kept, self.own

    def run(self, stop):
        """Run each stage up to `stop` on a copy of the model, and write back what it changed."""
        for stage in range(self.done, stop):
            before, view = self._copied()
            self.model.staged.run(*self.arguments(view), stage, stage + 1, True)
            for name, old in before.items():
                new = getattr(view, name)
                np.copyto(getattr(self.given.model, name), new, where=new != old)
        self.done = stop

    def _copied(self):
        """The arrays of the model as they are now, and a view of copies of them."""
        model, names = self.given.model, ("params", "first", "second", "steps")
        before = {name: getattr(model, name).copy() for name in names}
        copies = {name: array.copy() for name, array in before.items()}
        return before, self.thread.model._replace(**copies)

    def read(self):
        """Compute all gradients on a copy of the model."""
        _, view = self._copied()
        self.model.staged.read(*self.arguments(view))

    def write(self, number):
        """Update layer `number`, counted from the last one, of the shared model in place."""
        self.given.model.steps[0] += number == 0
        stage = self.stages // 2 + number
        self.model.staged.run(*self.arguments(self.thread.model), stage, stage + 1, False)
