"""Sums over the rows of a batch: the gradients of biases and of narrow layers."""

import cupy
import numpy as np

from hogbatch.kernels.gpu.dense import NARROW
from hogbatch.kernels.gpu.launch import WARP, columns_of_a_block, multiprocessors, operand_kernel

SUM_THREADS = 1024  # per block, as in dense.cu
ROWS_OF_A_THREAD = 8  # minimum where blocks share columns: with fewer, adding parts takes longer

_sum_columns = operand_kernel("dense", "sum_columns")
_narrow_gradient = operand_kernel("dense", "narrow_gradient")


def number_of_parts(rows: int, lanes: int, groups: int, blocks: int) -> int:
    """Return how many blocks share the `rows` of each of the `groups` of columns.

    `lanes` is the number of rows that a block reads at a time. In total there are at most `blocks`
    blocks, if any columns are shared.
    """
    return max(1, min(rows // (lanes * ROWS_OF_A_THREAD), blocks // groups))


class ColumnSums:
    """The kernels of these sums with their scratch memory, which captured graphs also use.

    Only one thread at a time may call them. There are about `blocks` blocks, if there are enough
    rows; by default as many as the device runs concurrently.
    """

    def __init__(self, blocks: int | None = None) -> None:
        self._blocks = 2 * multiprocessors() if blocks is None else blocks
        self._parts = cupy.empty(self._blocks * WARP * NARROW, np.float32)
        self._finished = cupy.zeros(self._blocks, np.uint32)
        cleared = cupy.cuda.get_current_stream().record(cupy.cuda.Event(block=True))
        cleared.synchronize()  # the callers use other streams

    def __call__(self, fraction: float, add: bool, grad: cupy.ndarray, out: cupy.ndarray) -> None:
        """out[H] = fraction * sum over B of grad[B, H], plus out if `add`."""
        rows, width = grad.shape
        numbers = float(fraction), int(add), rows, width
        arguments = *numbers, grad, self._parts, self._finished, out
        _sum_columns[grad.dtype.name](*self._shape(rows, width), arguments)

    def narrow_gradient(
        self, x: cupy.ndarray, grad: cupy.ndarray, out: cupy.ndarray, bias: cupy.ndarray
    ) -> None:
        """`Kernels.weight_gradient` for grad[B, H] with H up to NARROW."""
        (rows, fan_in), biased = x.shape, int(bias.size > 0)
        numbers = rows, fan_in, grad.shape[1], biased
        arguments = *numbers, x, grad, self._parts, self._finished, out, bias
        _narrow_gradient[x.dtype.name](*self._shape(rows, fan_in + biased), arguments)

    def _shape(self, rows: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the grid and the threads of a block for [rows, width]."""
        columns = min(columns_of_a_block(width), WARP)
        lanes, groups = SUM_THREADS // columns, -(-width // columns)
        return (groups, number_of_parts(rows, lanes, groups, self._blocks)), (columns, lanes)
