"""Sums of compressed changes, with error feedback, and the median of blocks of them.

Each function leaves the same bits in the buffers' `sum` on all servers, and in `kept` what this
server has not sent, which becomes its `residual` when the merge counts. Residuals are in units of
the sum; for the median, which weighs servers otherwise, in those of the change.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.attempt import Attempt
from hogbatch.cluster.buffers import FLOAT, ExchangeBuffers
from hogbatch.cluster.decisions.areas import bfloat16_slots, median_slots, top_k_slots
from hogbatch.cluster.decisions.compression import (
    add_top_k,
    from_bfloat16,
    to_bfloat16,
    top_count,
    top_k,
)
from hogbatch.cluster.decisions.median import (
    block_norms,
    block_slices,
    chosen_blocks,
    chosen_count,
    combined,
    finite_servers,
    median_weights,
)
from hogbatch.cluster.decisions.transfers import boundary
from hogbatch.store.merge import CHUNK

HALF = 2  # bytes of a bfloat16
Floats = NDArray[np.float32]


def want(buffers: ExchangeBuffers, weight: float) -> None:
    """kept = weight * change + residual: what this server contributes if everything is sent."""
    with np.errstate(over="ignore", invalid="ignore"):
        for here in _chunks(0, buffers.size):
            np.multiply(buffers.change[here], np.float32(weight), out=buffers.kept[here])
            buffers.kept[here] += buffers.residual[here]


def reduce_alone(attempt: Attempt, weight: float) -> None:
    """The sum of one server: everything is sent."""
    want(attempt.buffers, weight)
    np.copyto(attempt.buffers.sum, attempt.buffers.kept)
    attempt.buffers.kept[:] = 0.0


def reduce_bfloat16(attempt: Attempt, weight: float) -> None:
    """Each server adds one part of all changes in float32, and sends the sum to all, rounded.

    Each number is rounded twice, whatever the number of servers: by its sender, and after the
    additions by the server that has added, which keeps that error too.
    """
    buffers, size = attempt.buffers, attempt.buffers.size
    want(buffers, weight)
    slots, sums = bfloat16_slots(size, attempt.servers)
    for rank in attempt.others:
        start, stop = _part(rank, attempt.servers, size)
        _round(buffers, start, stop)
        target = buffers.offset("staging") + FLOAT * slots.offset(attempt.rank)
        attempt.send_bytes(rank, _halves_in(buffers, start, stop), target, step=0)
    start, stop = _part(attempt.rank, attempt.servers, size)
    _add_parts(attempt, start, stop)
    buffers.kept[start:stop] = buffers.sum[start:stop]
    _round(buffers, start, stop)
    source = _halves_in(buffers, start, stop)
    for rank in attempt.others:
        target = buffers.offset("staging") + FLOAT * sums + HALF * start
        attempt.send_bytes(rank, source, target, step=1)
    buffers.sum[start:stop] = from_bfloat16(buffers.outgoing.view(np.uint16)[start:stop])
    arrived = buffers.staging[sums:].view(np.uint16)
    for rank in attempt.others:
        attempt.wait(rank, step=1)
        for here in _chunks(*_part(rank, attempt.servers, size)):
            buffers.sum[here] = from_bfloat16(arrived[here])
    _finite(buffers.kept)


def _add_parts(attempt: Attempt, start: int, stop: int) -> None:
    """sum[start:stop] = what all servers want there, in the order of their places."""
    buffers = attempt.buffers
    slots, _ = bfloat16_slots(buffers.size, attempt.servers)
    for rank in attempt.others:
        attempt.wait(rank, step=0)
    with np.errstate(over="ignore", invalid="ignore"):
        for here in _chunks(start, stop):
            buffers.sum[here] = 0.0
            for rank in range(attempt.servers):
                if rank == attempt.rank:
                    buffers.sum[here] += buffers.kept[here]
                else:
                    halves = buffers.staging[slots.offset(rank) :].view(np.uint16)
                    part = halves[here.start - start : here.stop - start]
                    buffers.sum[here] += from_bfloat16(part)


def _round(buffers: ExchangeBuffers, start: int, stop: int) -> None:
    """outgoing = kept rounded to bfloat16; kept -= outgoing; for numbers [start, stop)."""
    halves = buffers.outgoing.view(np.uint16)
    with np.errstate(invalid="ignore"):
        for here in _chunks(start, stop):
            halves[here] = to_bfloat16(buffers.kept[here])
            buffers.kept[here] -= from_bfloat16(halves[here])


def _halves_in(buffers: ExchangeBuffers, start: int, stop: int) -> tuple[int, int]:
    """Where the bfloat16 numbers [start, stop) are in the buffers, in bytes."""
    first = buffers.offset("outgoing")
    return first + HALF * start, first + HALF * stop


def reduce_top_k(attempt: Attempt, weight: float) -> None:
    """Each server sends its largest numbers to all others, and all add them in the same order."""
    buffers = attempt.buffers
    want(buffers, weight)
    count, slots = top_count(buffers.size), top_k_slots(buffers.size, attempt.servers)
    indices, values = top_k(buffers.kept, count)
    buffers.outgoing[:count].view(np.int32)[:] = indices
    buffers.outgoing[count : 2 * count] = values
    for rank in attempt.others:
        target = ("staging", slots.offset(attempt.rank))
        attempt.send(rank, ("outgoing", 0, 2 * count), target, step=0)
    buffers.kept[indices] = 0.0
    _finite(buffers.kept)
    for rank in attempt.others:
        attempt.wait(rank, step=0)
    buffers.sum[:] = 0.0
    for rank in range(attempt.servers):
        slot = buffers.outgoing
        if rank != attempt.rank:
            slot = buffers.staging[slots.offset(rank) :]
        try:
            add_top_k(buffers.sum, slot[:count].view(np.int32), slot[count : 2 * count])
        except ValueError as error:
            raise attempt.invalid(rank, f"invalid top-k numbers: {error}") from error


def reduce_median(attempt: Attempt, weight: float) -> None:
    """The geometric median of the chosen blocks, times the sum of the weights of all servers.

    The first server computes with which weights the blocks of the servers are added, so that all
    add them with the same ones: sums of many squares may differ between processors.
    """
    buffers = attempt.buffers
    want(buffers, 1.0)
    weights, norms = _gather_norms(attempt, weight)
    count = chosen_count(buffers.size)
    indices = block_slices(chosen_blocks(norms, count), buffers.size)
    points = _gather_blocks(attempt, indices)
    _, _, end = median_slots(buffers.size, attempt.servers)
    shares = buffers.staging[end : end + 2 * attempt.servers].view(np.float64)
    if attempt.rank == 0:
        finite = finite_servers(norms) & np.isfinite(weights)
        shares[:] = median_weights(points, weights, finite) * weights[finite].sum()
        buffers.outgoing[: 2 * attempt.servers].view(np.float64)[:] = shares
        for rank in attempt.others:
            source = ("outgoing", 0, 2 * attempt.servers)
            attempt.send(rank, source, ("staging", end), step=2)
    else:
        attempt.wait(0, step=2)
    buffers.sum[:] = 0.0
    buffers.sum[indices] = combined(points, shares)
    buffers.kept[indices] = 0.0
    _finite(buffers.kept)


def _gather_norms(attempt: Attempt, weight: float) -> tuple[NDArray[np.float64], Floats]:
    """The weights[N] and the norms[N, blocks] of all servers."""
    buffers = attempt.buffers
    slots, _, _ = median_slots(buffers.size, attempt.servers)
    own = block_norms(buffers.kept)
    length = 1 + len(own)
    buffers.outgoing[0], buffers.outgoing[1:length] = weight, own
    at = slots.offset(attempt.rank)
    buffers.staging[at : at + length] = buffers.outgoing[:length]
    for rank in attempt.others:
        attempt.send(rank, ("outgoing", 0, length), ("staging", at), step=0)
    for rank in attempt.others:
        attempt.wait(rank, step=0)
    rows = buffers.staging[slots.start : slots.end].reshape(attempt.servers, slots.stride)
    return rows[:, 0].astype(np.float64), rows[:, 1:length]


def _gather_blocks(attempt: Attempt, indices: NDArray[np.intp]) -> Floats:
    """The numbers at `indices` of all servers, [N, n]."""
    buffers = attempt.buffers
    norms, slots, _ = median_slots(buffers.size, attempt.servers)
    first, at = norms.stride, slots.offset(attempt.rank)  # after the norms
    buffers.outgoing[first : first + len(indices)] = buffers.kept[indices]
    buffers.staging[at : at + len(indices)] = buffers.kept[indices]
    for rank in attempt.others:
        source = ("outgoing", first, first + len(indices))
        attempt.send(rank, source, ("staging", at), step=1)
    for rank in attempt.others:
        attempt.wait(rank, step=1)
    rows = buffers.staging[slots.start : slots.end].reshape(attempt.servers, slots.stride)
    return rows[:, : len(indices)]


def _part(rank: int, servers: int, size: int) -> tuple[int, int]:
    return boundary(rank, servers, size), boundary(rank + 1, servers, size)


def _chunks(start: int, stop: int) -> Iterator[slice]:
    return (slice(each, min(each + CHUNK, stop)) for each in range(start, stop, CHUNK))


def _finite(kept: Floats) -> None:
    """Forget numbers that are not finite: they would never leave."""
    for here in _chunks(0, len(kept)):
        part = kept[here]
        part[~np.isfinite(part)] = 0.0
