"""Sums of the columns of a matrix over its rows: the gradients of biases."""

import cupy
import numpy as np

from hogbatch.kernels.gpu.launch import WARP, columns_of_a_block, multiprocessors, operand_kernel

SUM_THREADS = 1024  # per block, as in dense.cu
ROWS_OF_A_THREAD = 8  # minimum where blocks share columns: with fewer, adding parts takes longer

_sum_columns = operand_kernel("dense", "sum_columns")


def number_of_parts(rows: int, lanes: int, groups: int, blocks: int) -> int:
    """Return how many blocks share the `rows` of each of the `groups` of columns.

    `lanes` is the number of rows that a block reads at a time. In total there are at most `blocks`
    blocks, if any columns are shared.
    """
    return max(1, min(rows // (lanes * ROWS_OF_A_THREAD), blocks // groups))


class ColumnSums:
    """The kernel `sum_columns` with its scratch memory, which captured graphs also use.

    Only one thread at a time may call it. There are about `blocks` blocks, if there are enough
    rows; by default as many as the device runs concurrently.
    """

    def __init__(self, blocks: int | None = None) -> None:
        self._blocks = 2 * multiprocessors() if blocks is None else blocks
        self._parts = cupy.empty(self._blocks * WARP, np.float32)
        self._finished = cupy.zeros(self._blocks, np.uint32)
        cleared = cupy.cuda.get_current_stream().record(cupy.cuda.Event(block=True))
        cleared.synchronize()  # the callers use other streams

    def __call__(self, fraction: float, add: bool, grad: cupy.ndarray, out: cupy.ndarray) -> None:
        """out[H] = fraction * sum over B of grad[B, H], plus out if `add`."""
        rows, width = grad.shape
        columns = min(columns_of_a_block(width), WARP)
        lanes, groups = SUM_THREADS // columns, -(-width // columns)
        grid = groups, number_of_parts(rows, lanes, groups, self._blocks)
        scratch = self._parts, self._finished
        numbers = float(fraction), int(add), rows, width
        _sum_columns[grad.dtype.name](grid, (columns, lanes), (*numbers, grad, *scratch, out))
