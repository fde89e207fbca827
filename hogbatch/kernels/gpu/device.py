"""Where a GPU worker computes: a GPU, or the host in the role of one.

Importable without CuPy. A worker written against `Device` runs unchanged on both, so its pull,
step and merge are tested, and a policy rehearsed, on machines without a GPU.
"""

import os
import weakref
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hogbatch.errors import DeviceError
from hogbatch.kernels import load
from hogbatch.kernels.contract import Kernels

Shape = int | tuple[int, ...]
HostArray = NDArray[Any]


class Device(Protocol):
    """One device with its memory, its kernels and its array module.

    Device arrays are ndarrays of `xp`. Any allocation may raise one of `out_of_memory`; then let
    go of the exception (its traceback keeps arrays alive), call `free_unused`, and ask for less.
    """

    name: str  # what people call it: "gpu:0", "gpu:host"
    kernels: Kernels
    xp: Any  # the array module: cupy, or numpy's like
    out_of_memory: tuple[type[BaseException], ...]

    def to_device(self, host: HostArray) -> Any:
        """A new device array with the contents of `host`."""

    def to_host(self, array: Any, out: HostArray) -> None:
        """out = array; same shape and dtype, both C-contiguous. Returns when it is done."""

    def copy_into(self, array: Any, host: HostArray) -> None:
        """array = host; same shape and dtype, both C-contiguous. `host` may change afterwards."""

    def empty(self, shape: Shape, dtype: DTypeLike) -> Any:
        """A new device array of any content."""

    def zeros(self, shape: Shape, dtype: DTypeLike) -> Any:
        """A new device array of zeros."""

    def free_bytes(self) -> int:
        """How much may still be allocated."""

    def free_unused(self) -> None:
        """Give back memory that was freed but kept for reuse."""

    def pin(self, array: HostArray) -> bool:
        """Lock the pages of `array` so that copies run at full speed; whether it worked.

        Slow: do it once, on the whole mapping. Never raises; unpinned memory is only slower.
        """

    def unpin(self, array: HostArray) -> None:
        """Undo `pin`, before `array` is unmapped."""

    def synchronize(self) -> None:
        """Wait until all that was asked for is done."""


class OutOfHostMemory(MemoryError):
    """A `HostDevice` was asked for more than its `memory_bytes`."""


class _CappedNumpy:
    """NumPy whose allocations count against a limit until the arrays die.

    `empty`, `zeros` and `full` are what the network and the worker allocate with; the rest of
    NumPy is passed through.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: Shape, dtype: DTypeLike = np.float64) -> HostArray:
        count = int(np.prod(shape, dtype=np.int64))
        self._take(count * np.dtype(dtype).itemsize)
        array: HostArray = np.empty(shape, dtype)
        weakref.finalize(array, self._give_back, array.nbytes)
        return array

    def zeros(self, shape: Shape, dtype: DTypeLike = np.float64) -> HostArray:
        return self.full(shape, 0, dtype)

    def full(self, shape: Shape, value: float, dtype: DTypeLike = np.float64) -> HostArray:
        array = self.empty(shape, dtype)
        array.fill(value)
        return array

    def _take(self, size: int) -> None:
        if self.used + size > self.limit:
            raise OutOfHostMemory(
                f"gpu:host has {self.limit - self.used} of {self.limit} bytes left; "
                f"{size} were asked for"
            )
        self.used += size

    def _give_back(self, size: int) -> None:
        self.used -= size


class HostDevice:
    """The host in the role of a GPU: NumPy arrays and the reference kernels.

    With `memory_bytes`, allocations beyond that sum raise OutOfHostMemory, so that running out of
    memory can be rehearsed.
    """

    name = "gpu:host"
    out_of_memory: tuple[type[BaseException], ...] = (OutOfHostMemory,)

    def __init__(self, memory_bytes: int | None = None) -> None:
        self.kernels = load("reference")
        self.xp: Any = np if memory_bytes is None else _CappedNumpy(memory_bytes)

    def to_device(self, host: HostArray) -> HostArray:
        array = self.empty(host.shape, host.dtype)
        array[...] = host
        return array

    def to_host(self, array: HostArray, out: HostArray) -> None:
        np.copyto(out, array, casting="no")

    def copy_into(self, array: HostArray, host: HostArray) -> None:
        np.copyto(array, host, casting="no")

    def empty(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        array: HostArray = self.xp.empty(shape, dtype)
        return array

    def zeros(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        array: HostArray = self.xp.zeros(shape, dtype)
        return array

    def free_bytes(self) -> int:
        if isinstance(self.xp, _CappedNumpy):
            return self.xp.limit - self.xp.used
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def free_unused(self) -> None:
        """Nothing is kept."""

    def pin(self, array: HostArray) -> bool:
        """Host memory is the device's own: nothing to lock, always true."""
        return True

    def unpin(self, array: HostArray) -> None:
        """Nothing was locked."""

    def synchronize(self) -> None:
        """Every call has returned with its work done."""


_REGISTER_READ_ONLY = 8  # cudaHostRegisterReadOnly


class CudaDevice:
    """One GPU through CuPy. Raises DeviceError if CuPy or the GPU is missing.

    Makes GPU `ordinal` the current one of the calling thread; use it from that thread.
    """

    def __init__(self, ordinal: int) -> None:
        try:
            import cupy
        except ImportError as missing:
            raise DeviceError(
                f"gpu:{ordinal} needs CuPy, which cannot be imported ({missing}); "
                "install hogbatch[cuda12] or hogbatch[cuda13]"
            ) from missing
        try:
            cupy.cuda.Device(ordinal).use()
        except RuntimeError as refused:  # CuPy's CUDARuntimeError is one
            raise DeviceError(f"gpu:{ordinal} cannot be used: {refused}") from refused
        self.name = f"gpu:{ordinal}"
        self.kernels = load("gpu")
        self.xp: Any = cupy
        self.out_of_memory: tuple[type[BaseException], ...] = (cupy.cuda.memory.OutOfMemoryError,)

    def to_device(self, host: HostArray) -> Any:
        array = self.xp.empty(host.shape, host.dtype)
        self.copy_into(array, host)
        return array

    def to_host(self, array: Any, out: HostArray) -> None:
        if out.size > 0:
            array.get(out=out)

    def copy_into(self, array: Any, host: HostArray) -> None:
        if host.size > 0:
            array.set(host)
            self.synchronize()  # a copy from pinned pages returns before it is done

    def empty(self, shape: Shape, dtype: DTypeLike) -> Any:
        return self.xp.empty(shape, dtype)

    def zeros(self, shape: Shape, dtype: DTypeLike) -> Any:
        return self.xp.zeros(shape, dtype)

    def free_bytes(self) -> int:
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return int(free) + int(self.xp.get_default_memory_pool().free_bytes())

    def free_unused(self) -> None:
        self.xp.get_default_memory_pool().free_all_blocks()
        self.xp.get_default_pinned_memory_pool().free_all_blocks()

    def pin(self, array: HostArray) -> bool:
        flags = 0 if array.flags.writeable else _REGISTER_READ_ONLY
        try:
            self.xp.cuda.runtime.hostRegister(array.ctypes.data, array.nbytes, flags)
        except RuntimeError:  # refused by limits, containers, or for the kind of mapping
            return False
        return True

    def unpin(self, array: HostArray) -> None:
        try:
            self.xp.cuda.runtime.hostUnregister(array.ctypes.data)
        except RuntimeError:  # was never pinned: nothing to undo
            return

    def synchronize(self) -> None:
        self.xp.cuda.get_current_stream().synchronize()
