"""The data segment as the device sees it."""

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.gpu.device import Device
from hogbatch.store.segment import Segment


class MappingError(Exception):
    """The device cannot read the data in the host's memory."""


class MappedSegment:
    """Device views of the arrays of a segment, so that kernels read the host's memory.

    The pages are pinned at the first use: all of them in one call, because arrays share pages. They
    stay pinned as long as this object exists; views must not be used longer than that.
    """

    def __init__(self, device: Device, segment: Segment) -> None:
        self._device = device
        self._segment = segment
        self._pinned: NDArray[np.uint8] | None = None

    def view(self, array: NDArray[Any]) -> Any:
        """Return the device's view of `array`, which must be in the segment.

        MappingError if the device cannot read the host's memory.
        """
        memory = self._memory()
        start = array.ctypes.data - self._segment.memory.ctypes.data
        flat = memory[start : start + array.nbytes]
        view = self._device.mapped(flat.view(array.dtype).reshape(array.shape))
        if view is None:
            raise MappingError(f"{self._device.name} cannot use addresses of the host")
        return view

    def _memory(self) -> NDArray[np.uint8]:
        if self._pinned is None:
            try:
                memory = self._segment.map_for_device()
            except OSError as error:
                raise MappingError(f"the data cannot be mapped for a device: {error}") from error
            if not self._device.pin(memory):
                raise MappingError(f"{self._device.name} cannot pin the data")
            weakref.finalize(self, self._device.unpin, memory).atexit = False
            self._pinned = memory
        return self._pinned
