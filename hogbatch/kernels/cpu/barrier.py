"""A barrier in memory for threads that compute without the interpreter lock (decision 45).

A thread that arrives spins until all have arrived; after SPINS rounds it gives its core away in
each further round. What a thread has written before it arrives, all threads see after they have
passed: the atomic operations are sequentially consistent.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.intrinsics import address

SPINS = 40_000  # some 50 microseconds
LINE = 8  # int64 in a cache line
# Cells of a barrier, each on a line of its own: threads that arrive leave the line that waiting
# threads read in their caches.
ARRIVED = 0  # threads that have arrived since it was last passed
PASSED = LINE  # times it was passed, or ABANDONED
ABANDONED = -1


def own_lines(count: int) -> NDArray[np.int64]:
    """Return zeros on `count` cache lines of their own, LINE numbers on each."""
    cells = np.zeros((count + 1) * LINE, np.int64)
    start = -(cells.ctypes.data // cells.itemsize) % LINE
    return cells[start : start + count * LINE]


def new_barrier() -> NDArray[np.int64]:
    """Return the memory of a barrier."""
    return own_lines(2)


def abandon(barrier: NDArray[np.int64]) -> None:
    """Let all threads that wait at `barrier` pass, now and later.

    Called for a thread that never arrives, because it has failed.
    """
    barrier[PASSED] = ABANDONED


def _cell(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def fetch_add(typing, address, amount):
    """Add `amount` to the int64 at `address` in one step; return its value before."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("add", _cell(builder, arguments[0]), arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def load(typing, address):
    """Read the int64 at `address`, which another thread may be changing."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(_cell(builder, arguments[0]), "seq_cst", 8)

    return types.int64(types.int64), generate


@intrinsic
def give_way(typing):
    """Let another thread have the core (sched_yield(2))."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


@kernel
def wait_for_all(barrier, threads):
    """Wait until all `threads` threads have called this; return False if one has abandoned it."""
    arrived, passed = address(barrier) + 8 * ARRIVED, address(barrier) + 8 * PASSED
    times = load(passed)
    if times == ABANDONED:
        return False
    if fetch_add(arrived, 1) == threads - 1:
        fetch_add(arrived, -threads)  # first: a thread that has passed may arrive again at once
        fetch_add(passed, 1)
        return True
    spins = 0
    while load(passed) == times:
        spins += 1
        if spins > SPINS:
            give_way()
    return load(passed) != ABANDONED
