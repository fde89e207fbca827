"""The pages of rows on disk: read in long runs before they are used, and unmapped afterwards.

Pages that a process has mapped count as its memory, though the kernel can take them at any time.
Unmapped ones stay in the cache of the kernel for as long as there is memory for it.
"""

import os
import threading
import time
import weakref
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.pages import unmap
from hogbatch.store.segment import Segment

INTERVAL_S: Final = 0.1  # in which an evaluation reads some 200 MB, and training a window


def unmap_regularly(segment: Segment) -> None:
    """Start a thread that unmaps the pages of a segment on disk, as long as it is used."""
    threading.Thread(target=_unmap, args=(weakref.ref(segment),), daemon=True).start()


def _unmap(held: "weakref.ref[Segment]") -> None:
    while (segment := held()) is not None and segment.fd >= 0:
        unmap(segment.memory)
        del segment
        time.sleep(INTERVAL_S)


class ReadAhead:
    """Lets the kernel read the training rows on disk a window before they are used."""

    def __init__(self, segment: Segment, orders: EpochOrders, train: Examples) -> None:
        self._segment, self._orders, self._train = segment, orders, train
        self._last = (-1, -1)

    def expect(self, epoch: int, start: int) -> None:
        """The rows from `start` of the order of `epoch` on are used next."""
        assert self._segment.window is not None
        block, size, _ = self._segment.window
        if (window := (epoch, start // size)) == self._last:
            return
        self._last = window
        order = self._orders.row_order(epoch)[window[1] * size : (window[1] + 2) * size]
        _, indptr, *cells = self._train.inputs
        for first in np.unique(order // block) * block:
            stop = min(first + block, self._train.rows)
            if self._train.sparse:
                first, stop = indptr[first], indptr[stop]
            for array in cells if self._train.sparse else [self._train.inputs.dense]:
                self._read(array[first:stop])

    def _read(self, array: NDArray[Any]) -> None:
        begin = array.ctypes.data - self._segment.memory.ctypes.data
        os.posix_fadvise(self._segment.fd, begin, array.nbytes, os.POSIX_FADV_WILLNEED)
