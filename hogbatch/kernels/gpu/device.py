"""Where a GPU worker computes: a GPU, or the host in the role of one.

Importable without CuPy. A worker written against `Device` runs unchanged on both, so its pull,
step and merge are tested, and a policy rehearsed, on machines without a GPU.
"""

import weakref
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hogbatch.kernels import reference
from hogbatch.kernels.contract import DeviceKernels
from hogbatch.machine.budget import available

Shape = int | tuple[int, ...]
HostArray = NDArray[Any]


class Device(Protocol):
    """One device with its memory, its kernels and its array module.

    Device arrays are ndarrays of `xp`. Any allocation may raise one of `out_of_memory`; then let
    go of the exception (its traceback keeps arrays alive), call `free_unused`, and ask for less.
    Any call may raise one of `failures`, after which only a new process can use the device.

    Each thread that uses the device has a stream of its own: what a thread asks for is done in
    that order, what two threads ask for at the same time, unless one follows a mark of the other.
    """

    name: str  # what people call it: "gpu:0", "gpu:host"
    model: str  # what it is: by that measurements of it are kept
    kernels: DeviceKernels
    xp: Any  # the array module: cupy, or numpy's like
    out_of_memory: tuple[type[BaseException], ...]
    failures: tuple[type[BaseException], ...]

    def enter(self) -> None:
        """Give the calling thread its stream; to be called once, before anything else."""

    def mark(self) -> Any:
        """A point behind everything that this thread has asked for so far."""

    def follow(self, mark: Any) -> None:
        """What this thread asks for from now on waits for `mark`; the thread does not."""

    def wait(self, mark: Any) -> None:
        """Return when everything before `mark` is done."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Do `work`, and return what does it again in one go: on a GPU, as a CUDA graph.

        Both times it does the same to the same arrays: it allocates nothing the second time, and
        no number of it comes back to the host.
        """

    def to_device(self, host: HostArray) -> Any:
        """A new device array with the contents of `host`."""

    def to_host(self, array: Any, out: HostArray) -> None:
        """out = array; same shape and dtype, both C-contiguous. Returns when it is done."""

    def copy_into(self, array: Any, host: HostArray) -> None:
        """array = host; same shape and dtype, both C-contiguous. `host` may change afterwards."""

    def start_copy(self, array: Any, host: HostArray) -> Any:
        """Begin array = host beside what this thread has asked for; the mark of its end.

        `host` is `pinned`, and must not change before that.
        """

    def empty(self, shape: Shape, dtype: DTypeLike) -> Any:
        """A new device array of any content."""

    def zeros(self, shape: Shape, dtype: DTypeLike) -> Any:
        """A new device array of zeros."""

    def free_bytes(self) -> int:
        """How much may still be allocated."""

    def free_unused(self) -> None:
        """Give back memory that was freed but kept for reuse."""

    def pinned(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        """A new host array of any content, which copies go from and to at full speed."""

    def mapped(self, array: HostArray) -> Any | None:
        """`array`, which has been pinned, as a device array: kernels read and write the host's
        memory. None where they cannot.
        """

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
    model = "host"
    out_of_memory: tuple[type[BaseException], ...] = (OutOfHostMemory,)
    failures: tuple[type[BaseException], ...] = ()

    def __init__(self, memory_bytes: int | None = None) -> None:
        self.kernels = cast(DeviceKernels, reference)
        self.xp: Any = np if memory_bytes is None else _CappedNumpy(memory_bytes)

    def enter(self) -> None:
        """Every call returns with its work done, on whatever thread."""

    def mark(self) -> None:
        """All is done."""

    def follow(self, mark: None) -> None:
        """It is done."""

    def wait(self, mark: None) -> None:
        """It is done."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        work()
        return work

    def to_device(self, host: HostArray) -> HostArray:
        array = self.empty(host.shape, host.dtype)
        array[...] = host
        return array

    def to_host(self, array: HostArray, out: HostArray) -> None:
        np.copyto(out, array, casting="no")

    def copy_into(self, array: HostArray, host: HostArray) -> None:
        np.copyto(array, host, casting="no")

    def start_copy(self, array: HostArray, host: HostArray) -> None:
        self.copy_into(array, host)

    def empty(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        array: HostArray = self.xp.empty(shape, dtype)
        return array

    def zeros(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        array: HostArray = self.xp.zeros(shape, dtype)
        return array

    def free_bytes(self) -> int:
        if isinstance(self.xp, _CappedNumpy):
            return self.xp.limit - self.xp.used
        return available().size

    def free_unused(self) -> None:
        """Nothing is kept."""

    def pinned(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        return np.empty(shape, dtype)

    def mapped(self, array: HostArray) -> HostArray:
        return array

    def pin(self, array: HostArray) -> bool:
        """Host memory is the device's own: nothing to lock, always true."""
        return True

    def unpin(self, array: HostArray) -> None:
        """Nothing was locked."""

    def synchronize(self) -> None:
        """Every call has returned with its work done."""
