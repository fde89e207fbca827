"""Memory that several processes map, known by a file descriptor and by nothing else.

A segment is a memfd (memfd_create(2)): no name in any file system, so nothing is left behind
when its last process ends, by SIGKILL or otherwise.
"""

import errno
import fcntl
import os
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.errors import ProtocolError, UsageError
from hogbatch.machine.budget import byte_size, insufficient_memory, require
from hogbatch.machine.limits import file_size_limit
from hogbatch.machine.linux import read_topology
from hogbatch.store.layout import Layout
from hogbatch.store.pages import allocate, collapse, map_shared

F_SEAL_FUTURE_WRITE = 0x10  # linux/fcntl.h, since 5.1; the fcntl module of CPython 3.11 lacks it
FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
ADVICE = "end other programs, or use fewer rows or a smaller network"


class Segment:
    """The arrays of one layout, as views of one mapping. Owns the descriptor `fd`."""

    def __init__(self, fd: int, layout: Layout, writable: bool) -> None:
        """Map `fd`; use :meth:`create` or :meth:`attach`."""
        self.fd = fd
        self.layout = layout
        self.sealed = False  # whether whoever maps it from now on can only read
        self.memory = map_shared(fd, layout.size, writable)  # [size], all of it
        self._fields = {field.name: field for field in layout.fields}

    @classmethod
    def create(cls, name: str, layout: Layout) -> Self:
        """Make a segment full of zeros; `name` shows in error messages and /proc/PID/maps.

        All its memory is taken here, so that too little is a UsageError now and never a SIGBUS
        in the middle of a run.
        """
        # Asked before allocating, because a memfd that outgrows the memory wakes the OOM killer.
        require(layout.size, f"the {name} segment", ADVICE)
        fd = os.memfd_create(f"hogbatch-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            _allocate(name, fd, layout.size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, FIXED_SIZE)
            segment = cls(fd, layout, writable=True)
        except BaseException:
            os.close(fd)
            raise
        collapse(segment.memory)  # before anyone touches it, so that little has to be copied
        return segment

    @classmethod
    def attach(cls, fd: int, layout: Layout, writable: bool) -> Self:
        """Map a segment made elsewhere; takes over `fd` unless it raises."""
        size = os.fstat(fd).st_size
        if size < layout.size:
            raise ProtocolError(
                f"expected a segment of {layout.size} bytes, as its layout says; got {size} bytes:"
                " run coordinator and worker from the same version of hogbatch"
            )
        return cls(fd, layout, writable)

    def __contains__(self, name: object) -> bool:
        """Whether there is an array of that name."""
        return name in self._fields

    def array(self, name: str) -> NDArray[Any]:
        """The array `name`, a view; read-only when the segment was attached so."""
        field = self._fields[name]
        return self.memory[field.offset : field.end].view(field.dtype).reshape(field.shape)

    def seal_data(self) -> None:
        """Let everyone from now on map it for reading only, for good.

        This process's mapping, and its views, stay writable.
        """
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)
        self.sealed = True

    def close(self) -> None:
        """Give up the descriptor and the mapping; views stay valid, and the last one unmaps it."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self.memory = np.empty(0, np.uint8)
        self._fields = {}


def _allocate(name: str, fd: int, size: int) -> None:
    try:
        allocate(fd, size, read_topology().nodes)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise insufficient_memory(size, f"the {name} segment", ADVICE) from error
        if error.errno == errno.EFBIG:  # shared memory counts as a file
            raise UsageError(
                f"expected that files may have {byte_size(size)}, for the {name} segment in "
                f"shared memory; {file_size_limit()}"
            ) from error
        raise
