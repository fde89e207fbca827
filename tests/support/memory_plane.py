"""A plane within one process, for servers that are threads."""

import itertools
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.planes.base import PlaneError

_windows: Final = dict[bytes, "_MemoryWindow"]()  # by address
_counter: Final = itertools.count()


class _MemoryWindow:
    """The right to write to buffers, until it is closed."""

    def __init__(self, buffers: ExchangeBuffers) -> None:
        self.buffers = buffers
        self.lock = threading.Lock()  # held while writing
        self.open = True
        self.notes = deque[tuple[bytes, bytes]]()  # (address of the sender, note)
        self.address = b"memory %d" % next(_counter)
        _windows[self.address] = self

    def close(self) -> None:
        with self.lock:
            self.open = False
        _windows.pop(self.address, None)


class MemoryPlane:
    """One server of several in this process."""

    name = "memory of one process"

    def __init__(self, buffers: ExchangeBuffers) -> None:
        self._buffers = buffers
        self._present: _MemoryWindow | None = None
        self._next: _MemoryWindow | None = _MemoryWindow(buffers)
        self._others = dict[int, bytes]()

    @property
    def address(self) -> bytes:
        """See `base.Plane`."""
        if self._next is None:
            self._next = _MemoryWindow(self._buffers)
        return self._next.address

    def connect(self, others: Mapping[int, bytes]) -> None:
        """See `base.Plane`."""
        own = self.address
        if self._present:
            self._present.close()
        self._present, self._next = _windows[own], None
        self._others = dict(others)

    def write(self, to: int, source: tuple[int, int], target: int, note: bytes) -> None:
        """See `base.Plane`."""
        address = self._others.get(to)
        window = _windows.get(address) if address else None
        if window is None or self._present is None:
            raise PlaneError(to, "is not connected")
        with window.lock:
            if not window.open:
                raise PlaneError(to, "has disconnected")
            start, stop = source
            part = self._buffers.memory[start:stop]
            window.buffers.memory[target : target + stop - start] = part
            window.notes.append((self._present.address, note))

    start = write

    def finish(self) -> None:
        """See `base.Plane`: nothing is left to wait for."""

    def notes(self) -> Iterator[tuple[int, bytes]]:
        """See `base.Plane`."""
        numbers = {address: number for number, address in self._others.items()}
        while self._present and self._present.notes:
            sender, note = self._present.notes.popleft()
            if sender in numbers:
                yield numbers[sender], note

    def close(self) -> None:
        """See `base.Plane`."""
        for window in (self._present, self._next):
            if window:
                window.close()
        self._present, self._others = None, {}
