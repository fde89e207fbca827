"""Shared memory segments, identified only by a file descriptor.

A segment is a memfd (memfd_create(2)), or a file on disk without a name, for rows that are larger
than memory. Neither has a name in any file system, so nothing is left behind when its last process
ends, even by SIGKILL.
"""

import errno
import fcntl
import os
import tempfile
import weakref
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.order import Window
from hogbatch.errors import ProtocolError, UsageError
from hogbatch.machine.budget import byte_size, insufficient_memory, require
from hogbatch.machine.limits import file_size_limit
from hogbatch.machine.linux import read_topology
from hogbatch.store.layout import Layout
from hogbatch.store.pages import allocate, collapse, map_shared

SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
ADVICE = "close other programs, or use fewer rows or a smaller network"

# Linux keeps what is written at once in one large page, which it maps as a whole for a single row.
WRITE_BYTES: Final = 1 << 16


class Segment:
    """The arrays of one layout as views of one mapping. Owns the descriptor `fd`."""

    def __init__(
        self, fd: int, layout: Layout, writable: bool, window: Window | None = None
    ) -> None:
        """Map `fd`; use :meth:`create` or :meth:`attach`."""
        self.fd = fd
        self.layout = layout
        self.window = window  # of a segment on disk, in memory None
        self.read_only = not writable  # new mappings can only read
        # [size], the whole mapping. For a single row on disk, a huge page would be mapped.
        self.memory = map_shared(fd, layout.size, writable, huge_pages=window is None)
        self._fields = {field.name: field for field in layout.fields}
        self._release = weakref.finalize(self, os.close, fd)

    @classmethod
    def create(cls, name: str, layout: Layout, *, read_only: bool = False) -> Self:
        """Create a segment filled with zeros; `name` appears in errors and /proc/PID/maps.

        All memory is allocated here, so that a lack of memory is a UsageError now and not a SIGBUS
        during the run. `read_only`: workers may open it for reading only; this process writes it.
        The seal F_SEAL_FUTURE_WRITE is not used, because it would also forbid `map_for_device`.
        """
        # Checked before allocating: a memfd that exceeds the memory triggers the OOM killer.
        require(layout.size, f"the {name} segment", ADVICE)
        fd = os.memfd_create(f"hogbatch-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            _allocate(name, fd, layout.size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SIZE_SEALS)
            segment = cls(fd, layout, writable=True)
        except BaseException:
            os.close(fd)
            raise
        segment.read_only = read_only
        collapse(segment.memory)  # before it is used, so that little has to be copied
        return segment

    @classmethod
    def on_disk(cls, directory: Path, layout: Layout, window: Window) -> Self:
        """Create a segment in a file, for `write`; only what is written takes space there.

        OSError if the directory cannot be used.
        """
        fd, path = tempfile.mkstemp(prefix="hogbatch-", dir=directory)
        os.unlink(path)
        os.ftruncate(fd, layout.size)
        return cls(fd, layout, writable=False, window=window)

    def write(self, name: str, start: int, values: NDArray[Any]) -> None:
        """Store `values` in array `name`, from entry `start` on; OSError if the disk is full."""
        field = self._fields[name]
        assert not len(values) or start + len(values) <= field.shape[0], f"they are within {name}"
        if self.window is None:
            self.array(name)[start : start + len(values)] = values
            return
        entry = np.dtype(field.dtype).itemsize * prod(field.shape[1:])
        content = np.ascontiguousarray(values, field.dtype).reshape(-1).view(np.uint8).data
        offset = field.offset + start * entry
        while content:
            count = os.pwrite(self.fd, content[:WRITE_BYTES], offset)
            content, offset = content[count:], offset + count

    def shorten(self, layout: Layout) -> None:
        """Let the arrays have the shapes of those of `layout`, at the same offsets."""
        pairs = zip(self.layout.fields, layout.fields, strict=True)
        fields = tuple(replace(field, shape=other.shape) for field, other in pairs)
        self.layout = replace(self.layout, fields=fields)
        self._fields = {field.name: field for field in fields}

    @classmethod
    def attach(cls, fd: int, layout: Layout, writable: bool, window: Window | None = None) -> Self:
        """Map a segment of another process; takes ownership of `fd` unless it raises."""
        size = os.fstat(fd).st_size
        if size < layout.size:
            raise ProtocolError(
                f"expected a segment of {layout.size} bytes, as in its layout; got {size} bytes:"
                " run coordinator and worker from the same version of hogbatch"
            )
        return cls(fd, layout, writable, window)

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def array(self, name: str) -> NDArray[Any]:
        """A view of the array `name`; read-only if the segment was attached read-only."""
        field = self._fields[name]
        return self.memory[field.offset : field.end].view(field.dtype).reshape(field.shape)

    def map_for_device(self) -> NDArray[np.uint8]:
        """Map the whole segment a second time, for a device to pin and read; [size].

        The mapping is writable, because most drivers pin no other pages. Nothing may write to it.
        OSError if the kernel refuses.
        """
        fd = os.open(f"/proc/self/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            return map_shared(fd, self.layout.size, writable=True)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the descriptor and drop the mapping, which is unmapped with its last view."""
        self._release()
        self.fd = -1
        self.memory = np.empty(0, np.uint8)
        self._fields = {}


def _allocate(name: str, fd: int, size: int) -> None:
    try:
        allocate(fd, size, read_topology().nodes)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise insufficient_memory(size, f"the {name} segment", ADVICE) from error
        if error.errno == errno.EFBIG:  # the limit also applies to shared memory
            raise UsageError(
                f"expected a file size limit of at least {byte_size(size)} for the {name} segment "
                f"in shared memory; {file_size_limit()}"
            ) from error
        raise
