"""The hashed loop: the compiled training loop of networks with a hashed output layer (SLIDE).

Hidden layers are computed as in `kernels.cpu.network`. Of the output layer, a batch computes its
active outputs: those that the hash tables contain for any of its rows, and its true labels. All
rows of the batch share them. Their weights are few enough to be copied together and stay in cache,
so the scattered dot products of SLIDE become products of matrices here.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Labels
from hogbatch.jit import inlined, kernel
from hogbatch.kernels.contract import ACTIVE, ROWS, UPDATES, Links
from hogbatch.kernels.cpu.dense import activate_backward, forget_not_finite
from hogbatch.kernels.cpu.losses import loss_gradient
from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.neurons import (
    REFRESH_INTERVAL,
    NeuronBuffers,
    gather_neurons,
    mark,
    neuron_buffers,
    pass_down,
    refresh_sketches,
    score,
    step_neurons,
)
from hogbatch.kernels.cpu.lsh.selection import HashedRows, SelectionScratch, select
from hogbatch.kernels.cpu.lsh.sketches import WORDS
from hogbatch.kernels.cpu.model import ACTIVATION, corrected, max_values
from hogbatch.kernels.cpu.network import Workspace, backward, forward, links_for, matrix, workspace


class HashedThread(NamedTuple):
    """State that one thread keeps from lease to lease."""

    head: NDArray[np.int32]  # [F], see `contract.Links`
    space: SelectionScratch  # of `select`, for batches as large as the lease's
    place: NDArray[np.int32]  # [H]: the column of an active output, -1 between batches
    changed: NDArray[np.uint8]  # [H], shared by all threads: 1 for outputs changed since hashing


@kernel
def labels_in(labels, row):
    """Return the number of labels of a row."""
    return labels.indptr[row + 1] - labels.indptr[row] if labels.indptr.shape[0] > 0 else 1


@kernel
def max_labels(labels, rows, batch_size):
    """Return the maximum number of labels in a batch of a lease."""
    most = 0
    for start in range(0, rows.shape[0], batch_size):
        count = 0
        for b in range(start, min(start + batch_size, rows.shape[0])):
            count += labels_in(labels, rows[b])
        most = max(most, count)
    return most


@kernel
def max_active(finder, labels):
    """Return the maximum number of active outputs of a batch with up to `labels` labels."""
    return labels + finder.rule.capacity + finder.rule.random


class HashedWorkspace(NamedTuple):
    """Memory of one thread for the batches of one lease."""

    hidden: Workspace
    neurons: NeuronBuffers
    links: Links
    hashed: HashedRows
    active: NDArray[np.int32]
    labels: Labels  # of a batch, as columns of its active outputs
    order: NDArray[np.int64]  # [B]: 0, 1, 2, ...


@kernel
def hashed_workspace(model, finder, inputs, labels, rows, size, head):
    """Allocate memory for batches of `size` rows out of `rows`; `head` is `HashedThread.head`."""
    hidden = model.table.shape[0] - 1
    stored, most = max_values(inputs, rows, size), max_labels(labels, rows, size)
    active = np.empty(max_active(finder, most), np.int32)
    return HashedWorkspace(
        workspace(model.table[:hidden], inputs.indptr.shape[0] > 0, size),
        neuron_buffers(model, size, active.shape[0]),
        links_for(head, stored),
        HashedRows(
            np.empty((size, finder.tables.counts.shape[0]), np.int32),
            np.empty((size, WORDS), np.int32),
        ),
        active,
        Labels(np.empty(size, np.float32), np.zeros(size + 1, np.int64), np.empty(most, np.int32)),
        np.arange(size),
    )


@kernel
def by_column(labels, rows, column, space):
    """Return the labels of `rows`[B] as columns of the active outputs, for rows 0, 1, 2, ..."""
    own, single = space.labels, labels.indptr.shape[0] == 0
    end = 0
    for b in range(rows.shape[0]):
        if single:
            own.values[b] = column[int(labels.values[rows[b]])]
            continue
        for n in range(labels.indptr[rows[b]], labels.indptr[rows[b] + 1]):
            own.indices[end] = column[labels.indices[n]]
            end += 1
        own.indptr[b + 1] = end
    rows_of_values = rows.shape[0] if single else 0
    ends = 0 if single else rows.shape[0] + 1
    return Labels(own.values[:rows_of_values], own.indptr[:ends], own.indices[:end])


@kernel
def find(finder, x, labels, rows, thread, space):
    """Fill `space.active` with the active outputs for `rows`[B] of x[B, K]; return their number."""
    hashed = HashedRows(space.hashed.codes[: rows.shape[0]], space.hashed.sketches[: rows.shape[0]])
    hash_rows(finder.functions, x, hashed.codes)
    hash_rows(finder.sketches.functions, x, hashed.sketches)
    return select(finder, hashed, labels, rows, thread.space, thread.place, space.active)


@inlined
def step_outputs(model, finder, optimizer, hyper, x, grad, active, phase, thread, neurons):
    """Update the active outputs, and some of their sketches."""
    step_neurons(model, optimizer, hyper, x, grad, active, thread.place, neurons)
    refresh_sketches(model, finder.sketches, active, phase % REFRESH_INTERVAL, neurons)
    mark(active, thread.changed)


@kernel
def train(model, finder, inputs, labels, rows, lease, hyper, thread, fence, totals):
    """Train as `kernels.cpu.network.train` does, on the active outputs that `finder` finds.

    totals[ACTIVE] is the number of active outputs, summed over the batches.
    """
    size = min(lease.batch_size, rows.shape[0])
    space = hashed_workspace(model, finder, inputs, labels, rows, size, thread.head)
    hidden, optimizer = model.table.shape[0] - 1, lease.optimizer
    for start in range(0, rows.shape[0], size):
        if fence[0] != lease.fence:
            break
        part = rows[start : min(start + size, rows.shape[0])]
        x = forward(model, hidden, inputs, part, space.hidden)
        active = space.active[: find(finder, x, labels, part, thread, space)]
        model.steps[0] += 1  # racy like the weights; only Adam's bias correction reads it
        totals[ROWS] += part.shape[0]
        totals[UPDATES] += 1.0
        totals[ACTIVE] += active.shape[0]
        if active.shape[0] == 0:
            continue  # rows without labels, for which no output was found, change nothing
        gather_neurons(model, active, space.neurons)
        scores = score(x, active.shape[0], space.neurons)
        grad = matrix(space.neurons.grad, 0, part.shape[0], scores.shape[1])
        own, order = by_column(labels, part, thread.place, space), space.order[: part.shape[0]]
        loss_gradient(lease.loss, own, order, part, active.shape[0], scores, grad, totals)
        forget_not_finite(totals, space.hidden.activations)
        exact = corrected(optimizer, hyper, model.steps[0])
        below = matrix(space.hidden.grad, 0, part.shape[0], x.shape[1])
        pass_down(grad, space.neurons, below)
        activate_backward(model.table[hidden - 1, ACTIVATION], x, below)
        phase, neurons = model.steps[0], space.neurons
        step_outputs(model, finder, optimizer, exact, x, grad, active, phase, thread, neurons)
        backward(model, hidden, inputs, part, lease, exact, space.links, space.hidden)
