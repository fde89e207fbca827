"""The compiled loop over a hashed output layer, with a clock around each kernel that it calls.

Calling each kernel from Python would cost microseconds for unpacking its arguments. Instead the
loop's own code is compiled a second time, with names of its module replaced.
"""

import time
from collections.abc import Callable, Iterable
from functools import cache
from types import FunctionType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from hogbatch.jit import FASTMATH
from hogbatch.kernels.cpu.lsh import network

CLOCK = time.CLOCK_THREAD_CPUTIME_ID  # other threads on the same core do not count
PHASES = {  # phase: the kernels that the loop calls in it
    "forward, input layer": ("forward",),
    "hash": ("hash_rows",),
    "select": ("select",),
    "gather": ("gather_neurons",),
    "forward": ("score",),
    "loss": ("by_column", "loss_gradient"),
    "backward": ("pass_down", "activate_backward"),
    "update": ("step_neurons",),
    "refresh sketches": ("refresh_sketches",),
    "update, input layer": ("backward",),
}


@cache
def clocked_loop() -> tuple[Any, NDArray[np.int64]]:
    """The compiled loop and the array nanoseconds[phases] it adds to; compiled once per process."""
    nanoseconds = np.zeros(len(PHASES), np.int64)
    phases, between = PHASES.values(), {}
    for name in ("find", "step_outputs"):  # between the loop and the phases
        between[name] = with_clocks(getattr(network, name), phases, nanoseconds, **between)
    return with_clocks(network.train, phases, nanoseconds, **between), nanoseconds


def with_clocks(
    loop: Any, phases: Iterable[Iterable[str]], nanoseconds: NDArray[np.int64], **changed: Any
) -> Any:
    """The kernel `loop`, which adds the time spent in the kernels of phases[p] to nanoseconds[p].

    `changed` replaces other names, such as a kernel between `loop` and these. The time is the
    processor time of the calling thread; reading it costs half a microsecond. `nanoseconds` must
    outlive the result.
    """
    loop = loop.py_func
    known = loop.__globals__ | changed
    for phase, kernels in enumerate(phases):
        address = nanoseconds.ctypes.data + nanoseconds.itemsize * phase
        known |= {name: _timed(known[name], address) for name in kernels}
    return _compiled(FunctionType(loop.__code__, known, loop.__name__))


def _compiled(function: Callable[..., Any]) -> Any:
    """`hogbatch.jit.kernel` without its cache, whose key ignores the values of global names."""
    return numba.njit(nogil=True, fastmath=FASTMATH, error_model="numpy")(function)


def _timed(kernel: Any, address: int) -> Any:
    """`kernel` with its nanoseconds added to the int64 at `address`."""

    @_compiled
    def call(*given):
        _add_time(address, -1)
        result = kernel(*given)
        _add_time(address, 1)
        return result

    return call


@intrinsic
def _add_time(typing, address, sign):
    """The int64 at `address` += sign * nanoseconds of CLOCK."""

    def generate(context, builder, signature, arguments):
        word, short = ir.IntType(64), ir.IntType(32)
        address, sign = arguments
        now = cgutils.alloca_once(builder, ir.ArrayType(word, 2))  # struct timespec
        kind = ir.FunctionType(short, [short, now.type])
        read = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        builder.call(read, [ir.Constant(short, CLOCK), now])
        seconds, rest = cgutils.unpack_tuple(builder, builder.load(now))
        at = builder.add(builder.mul(seconds, ir.Constant(word, 10**9)), rest)
        cell = builder.inttoptr(address, word.as_pointer())
        builder.store(builder.add(builder.load(cell), builder.mul(sign, at)), cell)
        return context.get_dummy_value()

    return numba.types.void(numba.types.int64, numba.types.int64), generate
