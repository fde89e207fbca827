"""Runs with few rows, in which several threads train at the same time."""

from dataclasses import replace

import msgspec
import numpy as np

from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, Hyper
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.simulate.rehearsal.concurrent_model import ConcurrentModel
from hogbatch.workers.compute.hash_tables import HashTables
from tests.support.assignments import assignment, examples, wide

ROWS, BATCH = 48, 5
KINDS = "dense", "sparse", "linear", "wide", "hashed"
PICTURES = "3x4x1,conv:3x2x2,tanh,pool:1x2"  # layers below the dense ones of "backbone"
OF_TEAMS = "dense", "sparse"  # those with batches of teams


def given(kind, optimizer="adagrad"):
    """An assignment for a network of this kind: a loop, or "sparse" for the dense loop on CSR."""
    if kind == "hashed":
        return wide(sparse=True, optimizer=optimizer)
    if kind == "wide":
        made = wide(sparse=True, optimizer=optimizer)
        return replace(made, welcome=msgspec.structs.replace(made.welcome, lsh=None))
    train = examples(ROWS, sparse=kind not in ("dense", "backbone"), several=kind == "sparse")
    hidden = () if kind == "linear" else (8, 16)
    below = {"backbone": PICTURES} if kind == "backbone" else {}
    made = assignment(train, hidden=hidden, optimizer=optimizer, **below)
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
    tables.swap(tables.build(tables.plan()))
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
