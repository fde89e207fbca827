"""The `Device` of a GPU, implemented with CuPy."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from hogbatch.errors import DeviceError
from hogbatch.kernels.gpu.device import Device, HostArray, Shape
from hogbatch.kernels.gpu.reference import DeviceKernels

# cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY: raised where memory does not come from
# CuPy's pool: for the code of a kernel, a captured graph, or pinned memory.
_OUT_OF_MEMORY = 2
_PORTABLE, _MAPPED, _READ_ONLY = 1, 2, 8  # flags of cudaHostRegister


class CudaDevice(Device):
    """One GPU. Raises DeviceError if CuPy or the GPU is missing.

    `precision` of matrix products: float32, tf32 or bfloat16. Only one thread at a time may compute
    products.
    """

    warm_up_seconds = 0.2  # idle GPUs lower their clocks
    measured_seconds = 0.02  # a thread that queues batches may be delayed by milliseconds

    def __init__(self, ordinal: int, precision: str = "float32") -> None:
        try:
            import cupy
        except ImportError as error:
            raise DeviceError(
                f"gpu:{ordinal} needs CuPy, which cannot be imported ({error}); "
                "install hogbatch[cuda12] or hogbatch[cuda13]"
            ) from error
        try:
            cupy.cuda.Device(ordinal).use()
        except RuntimeError as error:  # base class of CuPy's CUDARuntimeError
            raise DeviceError(f"gpu:{ordinal} cannot be used: {error}") from error
        operations = import_module("hogbatch.kernels.gpu.operations")
        properties = cupy.cuda.runtime.getDeviceProperties(ordinal)
        self.name = f"gpu:{ordinal}"
        self.model = f"{properties['name'].decode()}, {precision}"
        self.kernels: DeviceKernels = operations.GpuKernels(precision)
        self.xp: Any = cupy
        self.failures: tuple[type[BaseException], ...] = (
            cupy.cuda.runtime.CUDARuntimeError,  # raised by copies and waits
            cupy.cuda.driver.CUDADriverError,  # raised by launches
        )
        self._ordinal = ordinal
        self._copy_stream = cupy.cuda.Stream(non_blocking=True)
        self._streams: list[Any] = []  # keeps the threads' streams alive

    def is_out_of_memory(self, error: BaseException) -> bool:
        if isinstance(error, self.failures):
            return cast(Any, error).status == _OUT_OF_MEMORY
        return isinstance(error, MemoryError)  # CuPy's memory pool, cuBLASLt, or the host

    def enter(self) -> None:
        self.xp.cuda.Device(self._ordinal).use()
        stream = self.xp.cuda.Stream(non_blocking=True)
        self._streams.append(stream)
        stream.use()

    def record_event(self) -> Any:
        # The host sleeps while it waits for the event.
        return self._stream.record(self.xp.cuda.Event(block=True))

    def wait_event(self, event: Any) -> None:
        self._stream.wait_event(event)

    def synchronize_event(self, event: Any) -> None:
        event.synchronize()

    def elapsed(self, start: Any, end: Any) -> float:
        milliseconds: float = self.xp.cuda.get_elapsed_time(start, end)
        return milliseconds / 1e3

    def measure(self, work: Callable[[], None]) -> float:
        start = self.record_event()
        work()
        end = self.record_event()
        self.synchronize_event(end)
        return self.elapsed(start, end)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        products = cast(Any, self.kernels).products
        products.repeated = True
        try:
            work()
        finally:
            products.repeated = False
        stream = self._stream
        stream.begin_capture()
        try:
            work()
        except BaseException:
            try:
                stream.end_capture()
            except RuntimeError:  # the capture is invalid; the exception of `work` is raised
                logging.debug("the capture was invalidated")
            raise
        graph = stream.end_capture()
        return lambda: graph.launch()

    def to_host(self, array: Any, out: HostArray) -> None:
        if out.size > 0:
            self.synchronize()  # a copy to pageable memory would spin until then
            array.get(out=out, blocking=False)
            self.synchronize()

    def queue_to_host(self, array: Any, out: HostArray) -> None:
        if out.size > 0:
            array.get(out=out, blocking=False)

    def copy_into(self, array: Any, host: HostArray) -> None:
        if host.size > 0:
            self.synchronize()  # a copy from pageable memory would spin until then
            array.set(host)
            self.synchronize()  # copies from pinned pages are asynchronous

    def queue_copy(self, array: Any, host: HostArray) -> None:
        if host.size > 0:
            array.data.copy_from_host_async(host.ctypes.data, host.nbytes, self._stream)

    @contextmanager
    def copy_stream(self) -> Iterator[None]:
        own = self._stream  # at its end, CuPy's own context manager would use the null stream
        self._copy_stream.use()
        try:
            yield
        finally:
            own.use()

    def free_bytes(self) -> int:
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return int(free) + int(self.xp.get_default_memory_pool().free_bytes())

    def free_unused(self) -> None:
        self.xp.get_default_memory_pool().free_all_blocks()

    def pinned(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        count = int(np.prod(shape, dtype=np.int64))
        nbytes = max(1, count * np.dtype(dtype).itemsize)
        cuda = self.xp.cuda  # not its pool, which takes a power of two, and keeps it
        memory = cuda.PinnedMemoryPointer(cuda.PinnedMemory(nbytes), 0)
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def visible(self, shape: Shape, dtype: DTypeLike) -> tuple[HostArray, Any]:
        array = self.pinned(shape, dtype)
        array[...] = 0
        return array, self._view(array)

    def mapped(self, array: HostArray) -> Any | None:
        return self._view(array) if self._can("CanUseHostPointerForRegisteredMem") else None

    def _view(self, array: HostArray) -> Any:
        cuda = self.xp.cuda
        memory = cuda.UnownedMemory(array.ctypes.data, array.nbytes, array, self._ordinal)
        return self.xp.ndarray(array.shape, array.dtype, cuda.MemoryPointer(memory, 0))

    def pin(self, array: HostArray) -> bool:
        flags = _PORTABLE | _MAPPED
        # Most devices support neither this flag nor memory that is mapped read-only. Devices that
        # use the page tables of the host need no flag.
        if not array.flags.writeable and self._can("HostRegisterReadOnlySupported"):
            flags |= _READ_ONLY
        try:
            self.xp.cuda.runtime.hostRegister(array.ctypes.data, array.nbytes, flags)
        except RuntimeError:  # memory limits, containers, or an unsupported mapping
            return False
        return True

    def unpin(self, array: HostArray) -> None:
        try:
            self.xp.cuda.runtime.hostUnregister(array.ctypes.data)
        except RuntimeError:  # it was not pinned
            return

    def synchronize(self) -> None:
        self.record_event().synchronize()  # cudaStreamSynchronize would spin

    def _can(self, feature: str) -> bool:
        """Return whether the device has an attribute cudaDevAttr..., which is 0 or 1."""
        runtime = self.xp.cuda.runtime
        attribute = getattr(runtime, f"cudaDevAttr{feature}")
        return bool(runtime.deviceGetAttribute(attribute, self._ordinal))

    @property
    def _stream(self) -> Any:
        """The current stream of the calling thread."""
        return self.xp.cuda.get_current_stream()
