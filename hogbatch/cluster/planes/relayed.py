"""A plane through another process of each server, which maps the same buffers: the fallback.

The other process, for example an actor of Ray, receives the bytes, writes them to the buffers, and
passes the notes on. It must refuse writes of earlier memberships: this plane cannot see who wrote.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.buffers import ExchangeBuffers


class Relay(Protocol):
    """What the other process does."""

    def write(self, to: int, array: NDArray[np.uint8], target: int, note: bytes) -> None:
        """Write `array` to byte offset `target` of the buffers of server `to`, then the note.

        Returns as soon as `array`, which is a view of the buffers, may be changed. PlaneError if
        the server cannot be reached in time.
        """

    def notes(self) -> Iterator[tuple[int, bytes]]:
        """The notes that have arrived since the last call, with the numbers of their senders."""


class RelayedPlane:
    """Writes and receives through a relay."""

    def __init__(
        self, buffers: ExchangeBuffers, relay: Relay, name: str = "another process"
    ) -> None:
        self.name = name
        self._buffers = buffers
        self._relay = relay
        self._others = frozenset[int]()

    @property
    def address(self) -> bytes:
        """Empty: relays know each other by number."""
        return b""

    def connect(self, others: Mapping[int, bytes]) -> None:
        """See `base.Plane`; the relay itself must have refused earlier servers before this call."""
        self._others = frozenset(others)

    def write(self, to: int, source: tuple[int, int], target: int, note: bytes) -> None:
        """See `base.Plane`."""
        self._relay.write(to, self._buffers.memory[slice(*source)], target, note)

    start = write

    def finish(self) -> None:
        """See `base.Plane`: nothing is left to wait for."""

    def notes(self) -> Iterator[tuple[int, bytes]]:
        """See `base.Plane`."""
        for sender, note in self._relay.notes():
            if sender in self._others:
                yield sender, note

    def close(self) -> None:
        """See `base.Plane`; the relay stays open."""
        self._others = frozenset()
