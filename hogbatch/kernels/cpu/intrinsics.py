"""Numba intrinsics for memory: the address of an array, and prefetching."""

from typing import Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hogbatch.kernels.cpu import library
from hogbatch.kernels.cpu.simd import BYTE, INT, INT32

PREFETCH: Final = "llvm.prefetch.p0"


@intrinsic
def address(typing, array):
    """The address of array[0], as an int64 for address arithmetic."""

    def generate(context, builder, signature, arguments):
        proxy = cgutils.create_struct_proxy(signature.args[0])
        data = proxy(context, builder, value=arguments[0]).data
        return builder.ptrtoint(data, INT)

    return types.int64(array), generate


@intrinsic
def prefetch_line(typing, address):
    """Prefetch the cache line at `address`; invalid addresses are ignored."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], BYTE.as_pointer())
        hints = [ir.Constant(INT32, hint) for hint in (0, 3, 1)]  # read, near, data
        library.call(builder, PREFETCH, [pointer, *hints])
        return context.get_dummy_value()

    return types.void(types.intp), generate
