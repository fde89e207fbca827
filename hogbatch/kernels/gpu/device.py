"""The device that a GPU worker computes on: a GPU, or the host as a replacement for one.

Importable without CuPy. A worker that uses `Device` runs unchanged on both, so that its pulls,
steps and merges can be tested, and policies tried out, on machines without a GPU.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hogbatch.kernels.gpu.reference import DeviceKernels
from hogbatch.machine.budget import available

Shape = int | tuple[int, ...]
HostArray = NDArray[Any]


class Device:
    """One device with its memory, its kernels and its array module.

    The methods are those of a device that is the host: every call completes its work before it
    returns, and an event is the time. A GPU overrides them (`cuda_device`).

    Device arrays are ndarrays of `xp`. Any call may raise an error for which `is_out_of_memory` is
    true: not only allocations, because the first launch of a kernel loads its code and a captured
    graph takes memory too. The caller must then drop the exception (its traceback keeps arrays
    alive), call `free_unused`, and allocate less. Any call may raise one of `failures`; unless
    memory has run out, only a new process can use the device then.

    Each thread that uses the device has its own stream: the work queued by one thread runs in
    order, the work of two threads concurrently, unless one waits for an event of the other.
    """

    name: str  # display name: "gpu:0", "gpu:host"
    model: str  # hardware model, the key of cached measurements
    kernels: DeviceKernels
    xp: Any  # the array module: cupy, or one compatible with numpy
    failures: tuple[type[BaseException], ...]
    warm_up_seconds: float  # of work after which it runs at its full clock rate
    measured_seconds: float  # of work in one measurement, for an exact result

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether `error` means that the device or the host has no memory left."""
        return isinstance(error, MemoryError)

    def enter(self) -> None:
        """Create the stream of the calling thread, which must call this once, first of all."""

    def host_time(self) -> float:
        """Return the time of the host, in seconds since any moment."""
        return time.perf_counter()

    def record_event(self) -> Any:
        """Record an event after all work that this thread has queued so far.

        The host sleeps while it waits for the event; it does not spin, because CPU workers need
        the core.
        """
        return time.perf_counter()

    def wait_event(self, event: Any) -> None:
        """Let the work that this thread queues next wait for `event`; returns immediately."""

    def synchronize_event(self, event: Any) -> None:
        """Block until all work before `event` is done."""

    def elapsed(self, start: Any, end: Any) -> float:
        """Return the seconds between two events of this device that are done."""
        return end - start

    def measure(self, work: Callable[[], None]) -> float:
        """Do `work`; return the seconds of the device for it, without those of other programs."""
        began = time.thread_time()
        work()
        return time.thread_time() - began

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Run `work`, and return a function that repeats it: on a GPU, as a CUDA graph.

        `work` must do the same operations on the same arrays each time. It must not allocate the
        second time, and must not copy anything to the host.
        """
        work()
        return work

    def to_device(self, host: HostArray) -> Any:
        """Return a new device array with the contents of `host`."""
        array = self.empty(host.shape, host.dtype)
        self.copy_into(array, host)
        return array

    def to_host(self, array: Any, out: HostArray) -> None:
        """out = array; same shape and dtype, both C-contiguous. Returns when it is done."""
        np.copyto(out, array, casting="no")

    def copy_into(self, array: Any, host: HostArray) -> None:
        """array = host; same shape and dtype, both C-contiguous. `host` may change afterwards."""
        np.copyto(array, host, casting="no")

    def queue_copy(self, array: Any, host: HostArray) -> None:
        """Queue array = host. `host` must be pinned, and must not change before this is done."""
        self.copy_into(array, host)

    def queue_to_host(self, array: Any, out: HostArray) -> None:
        """Queue out = array. `out` must be pinned."""
        np.copyto(out, array, casting="no")

    def copy_stream(self) -> AbstractContextManager[Any]:
        """A context in which the thread's work is queued for another stream.

        That work runs concurrently with all other work, so events must order the two. Nothing may
        be allocated in the context. Only one thread may use the stream.
        """
        return nullcontext()

    def empty(self, shape: Shape, dtype: DTypeLike) -> Any:
        """Return a new uninitialized device array."""
        return self.xp.empty(shape, dtype)

    def zeros(self, shape: Shape, dtype: DTypeLike) -> Any:
        """A new device array of zeros."""
        return self.xp.zeros(shape, dtype)

    def free_bytes(self) -> int:
        """Number of bytes that can still be allocated."""
        return available().size

    def free_unused(self) -> None:
        """Release memory that was freed but is cached for reuse."""

    def pinned(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        """Return a new uninitialized host array in page-locked memory, for fast copies."""
        return np.empty(shape, dtype)

    def visible(self, shape: Shape, dtype: DTypeLike) -> tuple[HostArray, Any]:
        """Return a new array of zeros in page-locked memory, and the device's view of it."""
        array = np.zeros(shape, dtype)
        return array, array

    def mapped(self, array: HostArray) -> Any | None:
        """Return the pinned `array` as a device array, so that kernels access host memory.

        Returns None if the device does not support this.
        """
        return array

    def pin(self, array: HostArray) -> bool:
        """Lock the pages of `array`, so that copies run at full speed; return whether it worked.

        Slow: call it once for the whole mapping. Never raises; unpinned memory is only slower.
        """
        return True

    def unpin(self, array: HostArray) -> None:
        """Undo `pin`; to be called before `array` is unmapped."""

    def synchronize(self) -> None:
        """Block until all queued work is done."""


class HostDevice(Device):
    """The host as a replacement for a GPU: NumPy arrays and the reference kernels."""

    name = "gpu:host"
    model = "host"
    kernels = DeviceKernels()
    xp: Any = np
    failures: tuple[type[BaseException], ...] = ()
    warm_up_seconds = 0.0
    measured_seconds = 1e-3  # the clock of a thread is exact


def memory_shortage(device: Device, work: Callable[[], None]) -> str | None:
    """Do `work`; return the message of the error if memory has run out, None if it has not.

    The exception, whose traceback keeps arrays alive, no longer exists when this returns.
    """
    try:
        work()
    except Exception as error:
        if not device.is_out_of_memory(error):
            raise
        return str(error) or type(error).__name__
    return None
