"""The interface of a plane, by which one server writes to the memory of others."""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from hogbatch.errors import HogbatchError

TIMEOUT_S: Final = 10.0  # without an answer, another server counts as unreachable

SPINS: Final = 400  # polls before the first pause, of a few microseconds each
PAUSE_S: Final = (20e-6, 500e-6)  # the first pause between two polls, and the longest


class PlaneError(HogbatchError):
    """Another server could not be reached, or did not answer in time; `server` is its number."""

    def __init__(self, server: int, message: str) -> None:
        super().__init__(f"server {server} {message}")
        self.server = server


class Plane(Protocol):
    """Writes to the buffers of other servers, without their help (one-sided).

    The interface to remote memory of Xue et al. 2018 ("RPC Considered Harmful", arXiv 1805.08430):
    a transfer consists of its bytes and a short note that follows them.
    """

    name: str  # for output: "NIXL (UCX)"

    @property
    def address(self) -> bytes:
        """The data that other servers need to write here after the next :meth:`connect`.

        It changes with every `connect`: read it and give it to the others each time.
        """

    def connect(self, others: Mapping[int, bytes]) -> None:
        """Connect with the servers of a merge, given as number: address.

        The servers of earlier calls can no longer write here, even if they still try. Others that
        have the present address may begin to write before this call.
        PlaneError if one of them cannot be reached.
        """

    def start(self, to: int, source: tuple[int, int], target: int, note: bytes) -> None:
        """Write the bytes [start, stop) of the own buffers to offset `target` of those of `to`.

        The note arrives after the bytes. The source may only be changed after :meth:`finish`.
        Does not wait for the other server, if it can. Without bytes, only the note is sent.
        PlaneError if the server cannot be reached in time.
        """

    def finish(self) -> None:
        """Wait until all writes have arrived; PlaneError if that takes too long or one failed."""

    def notes(self) -> Iterator[tuple[int, bytes]]:
        """The notes that have arrived since the last call, with the numbers of their senders.

        Does not wait. The bytes that belong to a note are visible. Notes of one sender may come in
        another order; those of servers that are not connected are dropped. A plane needs these
        calls to make progress, also with what it sends. PlaneError if a write that was started has
        failed.
        """

    def close(self) -> None:
        """Disconnect from all servers; none can write here any more."""


def pauses_between_polls() -> Iterator[float]:
    """Seconds to sleep before each poll: none at first, then longer and longer ones."""
    for _ in range(SPINS):
        yield 0.0
    pause, longest = PAUSE_S
    while True:
        yield pause
        pause = min(1.5 * pause, longest)
