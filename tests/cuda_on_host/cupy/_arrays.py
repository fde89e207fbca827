"""CuPy's ndarray: a view of device memory; NumPy runs its operations in stream order."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cupy._copies import MemoryPointer
from cupy._device import refuse_in_capture
from cupy._memory import Memory, Region, host_view, reachable
from cupy._streams import Stream, get_current_stream

_SCALARS = (bool, int, float, np.generic)


class ndarray(NDArrayOperatorsMixin):
    __hash__ = None

    def __init__(self, shape: Any, dtype: Any = float, memptr: MemoryPointer | None = None) -> None:
        shape = (int(shape),) if np.ndim(shape) == 0 else tuple(map(int, shape))
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        self.data = memptr if memptr is not None else MemoryPointer(Memory(size), 0)
        self.on_host = host_view(self.data.ptr, shape, kind)  # for use by stream operations only

    shape = property(lambda self: self.on_host.shape)
    dtype = property(lambda self: self.on_host.dtype)
    size = property(lambda self: self.on_host.size)
    ndim = property(lambda self: self.on_host.ndim)
    nbytes = property(lambda self: self.on_host.nbytes)
    itemsize = property(lambda self: self.on_host.itemsize)
    strides = property(lambda self: self.on_host.strides)
    flags = property(lambda self: self.on_host.flags)
    T = property(lambda self: self._view(self.on_host.T))

    def _view(self, on_host: np.ndarray) -> "ndarray":
        """Another array on the same memory."""
        view = object.__new__(ndarray)
        address = on_host.ctypes.data if on_host.size else self.data.ptr
        view.data = self.data + (address - self.data.ptr)
        view.on_host = on_host
        return view

    @property
    def regions(self) -> tuple[Region, ...]:
        """The memory regions that must stay alive while the array is used."""
        if self.size == 0:
            return ()
        last = [(count - 1) * by for count, by in zip(self.shape, self.strides, strict=True)]
        low = self.on_host.ctypes.data + sum(min(each, 0) for each in last)
        return (reachable(low, sum(map(abs, last)) + self.itemsize),)

    def get(
        self,
        stream: Stream | None = None,
        order: str = "C",
        out: np.ndarray | None = None,
        blocking: bool = True,
    ) -> np.ndarray:
        refuse_in_capture("a copy to the host")
        stream = stream or get_current_stream()
        if out is None:
            out = np.empty(self.shape, self.dtype)
        if not isinstance(out, np.ndarray) or out.dtype != self.dtype:
            raise TypeError(f"{self.dtype} array cannot be obtained from {type(out)} {out.dtype}")
        if out.shape != self.shape:
            raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, got {out.shape}")
        whole = self if self.flags.c_contiguous else self.copy()
        if not out.flags.c_contiguous:
            raise RuntimeError("`out` cannot be specified when copying to non-contiguous ndarray")
        whole.data.copy_to_host_async(out.ctypes.data, whole.nbytes, stream)
        if blocking:
            stream.synchronize()
        return out

    def set(self, arr: np.ndarray, stream: Stream | None = None) -> None:
        refuse_in_capture("a copy from the host")
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not self.flags.c_contiguous:
            raise RuntimeError("Cannot set to non-contiguous array")
        whole = np.ascontiguousarray(arr)
        self.data.copy_from_host_async(whole.ctypes.data, whole.nbytes, stream)

    def fill(self, value: Any) -> None:
        compute(np.copyto, self, _scalar(value, self.dtype), writes=self, casting="unsafe")

    def __getitem__(self, index: Any) -> "ndarray":
        indices = index if isinstance(index, tuple) else (index,)
        if any(isinstance(each, (ndarray, list)) for each in indices):
            return compute(lambda array, *by: array[by], self, *indices)
        if any(isinstance(each, np.ndarray) and each.ndim for each in indices):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        if Ellipsis not in indices:
            indices = (*indices, Ellipsis)  # indexing a single cell returns an array, too
        return self._view(self.on_host[indices])

    def __setitem__(self, index: Any, value: Any) -> None:
        compute(_assign, self, index, _scalar(value, self.dtype), writes=self)

    def reshape(self, *shape: Any) -> "ndarray":
        shape = shape[0] if len(shape) == 1 else shape
        if self.flags.c_contiguous:
            return self._view(self.on_host.reshape(shape))
        return self.copy().reshape(shape)

    def ravel(self) -> "ndarray":
        return self.reshape(-1)

    def swapaxes(self, axis1: int, axis2: int) -> "ndarray":
        return self._view(self.on_host.swapaxes(axis1, axis2))

    def view(self, dtype: Any = None) -> "ndarray":
        return self._view(self.on_host if dtype is None else self.on_host.view(dtype))

    def copy(self) -> "ndarray":
        return compute(np.array, self)

    def astype(self, dtype: Any, copy: bool = True) -> "ndarray":
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return compute(np.array, self, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        (out,) = keywords.pop("out", (None,))
        if out is not None and not isinstance(out, ndarray):
            raise TypeError(f"the output must be a cupy.ndarray, not {type(out)}")
        return compute(getattr(ufunc, method), *inputs, out=out, **keywords)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct "
            "a NumPy array explicitly."
        )

    def __len__(self) -> int:
        return len(self.on_host)

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    __float__ = lambda self: float(self.item())  # noqa: E731
    __int__ = lambda self: int(self.item())  # noqa: E731
    __bool__ = lambda self: bool(self.item())  # noqa: E731
    __repr__ = lambda self: repr(self.get())  # noqa: E731


def _reduction(name: str) -> Callable[..., Any]:
    def reduce(self: ndarray, axis: Any = None, out: ndarray | None = None, **keywords: Any) -> Any:
        return compute(getattr(np, name), self, axis=axis, out=out, **keywords)

    return reduce


for _name in ("sum", "max", "min", "mean", "all", "any", "prod", "argmax", "argmin"):
    setattr(ndarray, _name, _reduction(_name))


def compute(
    function: Callable[..., Any],
    *arguments: Any,
    out: ndarray | None = None,
    writes: ndarray | None = None,
    **keywords: Any,
) -> Any:
    """Call NumPy's `function` on device arrays.

    With `out` or `writes` the call is queued in the stream or captured in the graph. Otherwise it
    is executed immediately, and the result is a new array.
    """
    used = [each for each in (*_leaves(arguments), out) if isinstance(each, ndarray)]
    given = _hosts(arguments)
    target = out if out is not None else writes
    if out is not None:
        keywords["out"] = out.on_host
    if target is not None:
        regions = tuple(region for each in used for region in each.regions)
        get_current_stream().enqueue(lambda: function(*given, **keywords), regions)
        return target
    refuse_in_capture("an operation that allocates its result")
    get_current_stream().synchronize()
    return asarray(np.asarray(function(*given, **keywords)))


def asarray(a: Any, dtype: Any = None) -> ndarray:
    """Return a device array of `a`, or `a` itself if it is one of that type."""
    if isinstance(a, ndarray):
        return a if dtype is None else a.astype(dtype, copy=False)
    host = np.ascontiguousarray(a, dtype).reshape(np.shape(a))
    array = ndarray(host.shape, host.dtype)
    array.set(host)
    return array


def _assign(array: np.ndarray, index: Any, value: Any) -> None:
    array[index] = value


def _scalar(value: Any, dtype: np.dtype) -> Any:
    """The value to write: a device array or a scalar."""
    if isinstance(value, (ndarray, *_SCALARS)):
        return value
    if isinstance(value, np.ndarray) and value.size == 1:
        return value.astype(dtype).reshape(())[()]
    raise ValueError(f"non-scalar {type(value)} cannot be written to a cupy.ndarray")


def _leaves(arguments: tuple[Any, ...]) -> list[Any]:
    return [leaf for each in arguments for leaf in (each if isinstance(each, tuple) else [each])]


def _hosts(value: Any) -> Any:
    """`value` with device arrays replaced by their NumPy views."""
    if isinstance(value, ndarray):
        return value.on_host
    if isinstance(value, tuple):
        return tuple(map(_hosts, value))
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    return value
