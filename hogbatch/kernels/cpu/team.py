"""The team loop: threads that share a cache compute one batch together.

Each batch has two phases, with a barrier after each: each thread computes the gradients of its own
rows, then updates its own rows of the weights of every dense layer, from all rows of the batch
(decision 45). A sparse first layer is updated without locks, from each thread's own rows. Teams
update the shared model without locks, like single threads.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import ROWS, SKIPPED, UPDATES, Floats
from hogbatch.kernels.cpu import dense, network
from hogbatch.kernels.cpu.barrier import wait_for_all
from hogbatch.kernels.cpu.losses import loss_gradient
from hogbatch.kernels.cpu.model import (
    FAN_IN,
    FAN_OUT,
    WEIGHTS,
    WIDTH,
    corrected,
    max_values,
    with_own_slots,
)
from hogbatch.kernels.cpu.network import matrix, slots_at
from hogbatch.kernels.cpu.sparse import csr_bound_rows, step_linked

ROWS_TOGETHER = 8  # rows of weights that always belong to one thread


class Team(NamedTuple):
    """Memory that the threads of a team share, for batches of up to B rows."""

    threads: int
    barrier: NDArray[np.int64]  # of `new_barrier`
    goes_on: NDArray[np.int64]  # [0]: whether the next batch is computed
    # as in `Workspace`, of all rows: of the size `network.layer_starts(...)[-1]`
    activations: Floats
    grads: Floats  # of each layer's outputs, before the activation; as `activations`


@kernel
def part_of(total, number, parts):
    """The start of part `number` of `total`, divided into `parts` that are as equal as possible."""
    return total * number // parts


@kernel
def own_rows(table, sparse, starts, team, low, space):
    """Return the Workspace of a thread whose first row is `low`, in the arrays of the team."""
    own = starts.copy()
    own[0] += low * (1 if sparse else table[0, FAN_IN])
    for layer in range(table.shape[0]):
        own[layer + 1] += low * table[layer, FAN_OUT]
    return network.Workspace(own, team.activations, team.grads, space.bias, space.dense)


@kernel
def forget_own(table, sparse, space, count):
    """`forget_not_finite` for the activations of a thread's `count` rows."""
    skipped = np.ones(SKIPPED + 1)
    width = 1 if sparse else table[0, FAN_IN]
    dense.forget_not_finite(skipped, matrix(space.activations, space.starts[0], count, width))
    for layer in range(table.shape[0]):
        out = matrix(space.activations, space.starts[layer + 1], count, table[layer, FAN_OUT])
        dense.forget_not_finite(skipped, out)


@kernel
def scale_all(model, inputs, rows, batch, optimizer, hyper, space):
    """Scale the gradients of a thread's `rows` for all layers, out of `batch` rows."""
    sparse, count = inputs.indptr.shape[0] > 0, rows.shape[0]
    for layer in range(model.table.shape[0]):
        fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
        grad = matrix(space.grads, space.starts[layer + 1], count, fan_out)
        if layer == 0 and sparse:
            csr_bound_rows(optimizer, hyper, batch, inputs, rows, grad)
        else:
            x = matrix(space.activations, space.starts[layer], count, fan_in)
            dense.scale_rows(optimizer, hyper, batch, x, grad, grad)


@kernel
def update(model, inputs, rows, optimizer, hyper, own, starts, team, member, links, space):
    """Phase 2 of one thread; `own` is `with_own_slots` of `hyper`."""
    size = rows.shape[0]
    sparse = inputs.indptr.shape[0] > 0
    for layer in range(model.table.shape[0] - 1, -1, -1):
        fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
        if layer == 0 and sparse:
            low = part_of(size, member, team.threads)
            high = part_of(size, member + 1, team.threads)
            grad = matrix(team.grads, starts[1] + low * fan_out, high - low, fan_out)
            offset = model.table[0, WEIGHTS]
            weights = matrix(model.params, offset, fan_in, fan_out)
            slots = slots_at(model.first, model.second, offset, fan_in, fan_out)
            step_linked(optimizer, hyper, inputs, rows[low:high], grad, links, slots, weights)
            if member == 0:
                grad = matrix(team.grads, starts[1], size, fan_out)
                first, second = model.first, model.second
                network.step_bias(model, 0, optimizer, hyper, grad, first, second, space.bias)
            continue
        grad = matrix(team.grads, starts[layer + 1], size, fan_out)
        x = matrix(team.activations, starts[layer], size, fan_in)
        offset = model.table[layer, WEIGHTS]
        weights = matrix(model.params, offset, fan_in, fan_out)
        slots = slots_at(model.own_first, model.own_second, offset, fan_in, fan_out)
        used = inputs.dense.shape[1] if layer == 0 else fan_in
        together = -(-used // ROWS_TOGETHER)
        first = ROWS_TOGETHER * part_of(together, member, team.threads)
        stop = min(used, ROWS_TOGETHER * part_of(together, member + 1, team.threads))
        for block in range(first, stop, dense.BLOCK_ROWS):
            count = min(dense.BLOCK_ROWS, stop - block)
            dense.update_block(optimizer, own, x, grad, slots, weights, block, count, space.dense)
        if member == layer % team.threads:
            network.step_scaled_bias(model, layer, optimizer, own, grad, space.bias)


@kernel
def train(model, inputs, labels, rows, lease, hyper, head, fence, totals, team, member):
    """Train on `rows`[B...] together with the other threads of a team; add to `totals`.

    All threads of the team call this with the same rows, and with their own `head` and `totals`,
    whose sum counts each row once. `lease.batch_size` is that of the whole team. All must have
    returned before one of them calls this again. Stops as `network.train` does, and also when the
    barrier is abandoned.
    """
    sparse, size = inputs.indptr.shape[0] > 0, min(lease.batch_size, rows.shape[0])
    layers, threads, dropout = model.table.shape[0], team.threads, lease.dropout
    space = network.workspace(model.table, sparse, -(-size // threads))
    links = network.links_for(head, max_values(inputs, rows, size))
    width = model.table[layers - 1, WIDTH]
    for start in range(0, rows.shape[0], size):
        if member == 0:
            team.goes_on[0] = 1 if fence[0] == lease.fence else 0
        if not wait_for_all(team.barrier, threads) or team.goes_on[0] == 0:
            break
        part = rows[start : min(start + size, rows.shape[0])]
        batch = part.shape[0]
        starts = network.layer_starts(model.table, sparse, batch)
        low, high = part_of(batch, member, threads), part_of(batch, member + 1, threads)
        exact = corrected(lease.optimizer, hyper, model.steps[0] + 1)
        own = with_own_slots(lease.optimizer, exact, lease.threads)
        if high > low:
            mine, memory = part[low:high], own_rows(model.table, sparse, starts, team, low, space)
            scores = network.forward(model, np.int64(0), layers, inputs, mine, memory, dropout)
            fan_out = model.table[layers - 1, FAN_OUT]
            grad = matrix(team.grads, memory.starts[layers], high - low, fan_out)
            loss_gradient(lease.loss, labels, mine, mine, width, scores, grad, totals)
            dense.scale(np.float32(high - low) / np.float32(batch), grad)
            if totals[SKIPPED] > 0.0:
                forget_own(model.table, sparse, memory, high - low)
            totals[ROWS] += high - low
            network.pass_to_first(model, layers, mine, memory, dropout)
            scale_all(model, inputs, mine, batch, lease.optimizer, own, memory)
        if not wait_for_all(team.barrier, threads):
            break
        if member == 0:
            model.steps[0] += 1
            totals[UPDATES] += 1.0
        optimizer = lease.optimizer
        update(model, inputs, part, optimizer, exact, own, starts, team, member, links, space)
