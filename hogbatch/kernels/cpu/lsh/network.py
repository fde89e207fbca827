"""The hashed loop: the compiled training loop of networks with a hashed output layer (SLIDE).

Hidden layers are computed as in `kernels.cpu.network`. Of the output layer, a batch computes its
active outputs, whose weights are copied together (docs/slide.md).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Labels
from hogbatch.jit import inlined, kernel
from hogbatch.kernels.contract import ACTIVE, ROWS, UPDATES, Links
from hogbatch.kernels.cpu.dense import activate_backward, forget_not_finite
from hogbatch.kernels.cpu.losses import loss_gradient, weight_of
from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.neurons import (
    REFRESH_INTERVAL,
    NeuronBuffers,
    gather_neurons,
    neuron_buffers,
    pass_down,
    refresh_sketches,
    score,
    step_neurons,
    stored,
)
from hogbatch.kernels.cpu.lsh.selection import (
    HashedRows,
    SelectionScratch,
    clear_positions,
    select,
)
from hogbatch.kernels.cpu.lsh.sketches import WORDS
from hogbatch.kernels.cpu.model import ACTIVATION, FAN_IN, corrected, max_values
from hogbatch.kernels.cpu.network import (
    Workspace,
    backward,
    forward,
    links_for,
    matrix,
    workspace,
)


class HashedThread(NamedTuple):
    """State that one thread keeps from lease to lease."""

    head: NDArray[np.int32]  # [F], see `contract.Links`
    space: SelectionScratch  # of `select`, for batches as large as the lease's
    place: NDArray[np.int32]  # [H]: the column of an active output, -1 between batches
    changed: NDArray[np.uint8]  # [H], shared by all threads: 1 for outputs changed since hashing


class HashedSpace(NamedTuple):
    """Memory of one thread, and what a batch keeps from one stage to the next."""

    hidden: Workspace  # of all layers but the last
    links: Links
    number: NDArray[np.int64]  # as in `network.BatchSpace`
    neurons: NeuronBuffers
    hashed: HashedRows
    active: NDArray[np.int32]
    count: NDArray[np.int64]  # [1]: of `active`; if it is 0, no layer is updated
    labels: Labels  # of a batch, as columns of its active outputs
    order: NDArray[np.int64]  # [B]: 0, 1, 2, ...
    thread: HashedThread


@inlined
def open_batches(model, finder, inputs, labels, rows, size, thread):
    """Allocate memory for batches of `size` rows out of `rows`."""
    table, sparse = model.table[: model.table.shape[0] - 1], inputs.indptr.shape[0] > 0
    most = max_values(labels, rows, size) if labels.indptr.shape[0] > 0 else size
    active = np.empty(most + finder.rule.capacity + finder.rule.random, np.int32)
    return HashedSpace(
        workspace(table, sparse, size),
        links_for(thread.head, max_values(inputs, rows, size)),
        np.zeros(1, np.int64),
        neuron_buffers(model, size, active.shape[0]),
        HashedRows(
            np.empty((size, finder.tables.counts.shape[0]), np.int32),
            np.empty((size, WORDS), np.int32),
        ),
        active,
        np.zeros(1, np.int64),
        Labels(
            np.empty(size, np.float32),
            np.zeros(size + 1, np.int64),
            np.empty(most, np.int32),
            np.empty(size, np.float32),
        ),
        np.arange(size),
        thread,
    )


@kernel
def by_column(labels, rows, column, space):
    """Return the labels of `rows`[B] as columns of the active outputs, for rows 0, 1, 2, ..."""
    own, single = space.labels, labels.indptr.shape[0] == 0
    end = 0
    for b in range(rows.shape[0]):
        own.weights[b] = weight_of(labels, rows[b])
        if single:
            own.values[b] = column[int(labels.values[rows[b]])]
            continue
        for n in range(labels.indptr[rows[b]], labels.indptr[rows[b] + 1]):
            own.indices[end] = column[labels.indices[n]]
            end += 1
        own.indptr[b + 1] = end
    rows_of_values = rows.shape[0] if single else 0
    ends = 0 if single else rows.shape[0] + 1
    weights = own.weights[: rows.shape[0]]
    return Labels(own.values[:rows_of_values], own.indptr[:ends], own.indices[:end], weights)


@kernel
def find(finder, x, labels, rows, thread, space, active):
    """Fill `active` with the active outputs for `rows`[B] of x[B, K]; return their number.

    `space` are HashedRows for at least B rows; `thread` and `active` are those of `select`.
    """
    hashed = HashedRows(space.codes[: rows.shape[0]], space.sketches[: rows.shape[0]])
    hash_rows(finder.functions, x, hashed.codes)
    hash_rows(finder.sketches.functions, x, hashed.sketches)
    return select(finder, hashed, labels, rows, thread.space, thread.place, active)


@inlined
def score_active(model, finder, x, labels, rows, lease, space, totals):
    """Find and score the active outputs of a batch; pass the gradient of its loss down."""
    hidden, size, kept = model.table.shape[0] - 1, rows.shape[0], space.hidden
    place = space.thread.place
    found = space.thread, space.hashed, space.active
    count = space.count[0] = find(finder, x, labels, rows, *found)
    model.steps[0] += 1  # racy like the weights; only Adam's bias correction reads it
    space.number[0] = model.steps[0]
    totals[ROWS] += size
    totals[UPDATES] += 1.0
    totals[ACTIVE] += count
    if count == 0:
        return  # rows without labels, for which no output was found, change nothing
    active = space.active[:count]
    gather_neurons(model, active, space.neurons)
    scores = score(x, count, space.neurons)
    grad = matrix(space.neurons.grad, 0, size, scores.shape[1])
    own, order = by_column(labels, rows, place, space), space.order[:size]
    loss_gradient(lease.loss, own, order, rows, count, scores, grad, totals)
    forget_not_finite(totals, kept.activations)
    below = matrix(kept.grads, kept.starts[hidden], size, x.shape[1])
    pass_down(grad, space.neurons, below)
    activate_backward(model.table[hidden - 1, ACTIVATION], x, below, lease.dropout)
    clear_positions(active, count, place)  # no later stage may follow


@inlined
def step_active(model, finder, optimizer, hyper, x, space):
    """Update the active outputs, and some of their sketches."""
    active, place, neurons = space.active[: space.count[0]], space.thread.place, space.neurons
    for a in range(active.shape[0]):
        place[active[a]] = a
    grad = matrix(neurons.grad, 0, x.shape[0], stored(active.shape[0]))
    step_neurons(model, optimizer, hyper, x, grad, active, place, neurons)
    phase = space.number[0] % REFRESH_INTERVAL
    refresh_sketches(model, finder.sketches, active, phase, neurons)
    for neuron in active:  # after their update: `hash_neurons` may read them meanwhile
        space.thread.changed[neuron] = 1


@inlined
def run_stages(model, finder, inputs, labels, rows, lease, hyper, space, totals, first, stop, down):
    """Compute stages first : stop of a batch; see `hogbatch.kernels.cpu.loops`."""
    layers, size, kept = model.table.shape[0], rows.shape[0], space.hidden
    hidden = layers - 1
    x = matrix(kept.activations, kept.starts[hidden], size, model.table[hidden, FAN_IN])
    if first < hidden:
        forward(model, first, min(stop, hidden), inputs, rows, kept, lease.dropout)
    if first <= hidden < stop:
        score_active(model, finder, x, labels, rows, lease, space, totals)
    exact = corrected(lease.optimizer, hyper, space.number[0])
    if first <= layers < stop and space.count[0] > 0:
        step_active(model, finder, lease.optimizer, exact, x, space)
    if stop > layers + 1 and space.count[0] > 0:
        low, high = 2 * layers - stop, min(hidden, 2 * layers - first)
        backward(model, low, high, down, inputs, rows, lease, exact, space.links, kept)


@kernel
def train(model, finder, inputs, labels, rows, lease, hyper, thread, fence, totals):
    """Train as `kernels.cpu.network.train` does, on the active outputs that `finder` finds.

    totals[ACTIVE] is the number of active outputs, summed over the batches.
    """
    size, stages = min(lease.batch_size, rows.shape[0]), 2 * model.table.shape[0]
    first = np.int64(0)  # no literal type
    space = open_batches(model, finder, inputs, labels, rows, size, thread)
    for start in range(0, rows.shape[0], size):
        if fence[0] != lease.fence:
            break
        part = rows[start : min(start + size, rows.shape[0])]
        run_stages(
            model, finder, inputs, labels, part, lease, hyper, space, totals, first, stages, True
        )
