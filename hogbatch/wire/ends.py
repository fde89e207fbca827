"""The two ends of a control plane, whatever carries it (:mod:`sockets`, :mod:`loopback`)."""

from collections.abc import Iterator
from typing import Protocol

from hogbatch.wire.messages import ToCoordinator, ToWorker


class CoordinatorEnd(Protocol):
    """Where all workers' messages arrive. Used by one thread."""

    refused: int  # frames that were dropped because they were no message of this protocol

    def watch(self, fd: int) -> None:
        """Let `wait` return when `fd` is readable."""

    def unwatch(self, fd: int) -> None:
        """Undo `watch`."""

    def wait(self, timeout_s: float) -> list[int]:
        """Wait for messages, watched descriptors or the timeout; return what is readable."""

    def receive(self) -> Iterator[tuple[str, ToCoordinator]]:
        """Yield what has arrived as (worker's key, message), without waiting."""

    def send(self, worker: str, message: ToWorker) -> bool:
        """Pass `message` on without waiting; False if that worker cannot be reached."""

    def close(self) -> None:
        """Give the address up."""


class WorkerEnd(Protocol):
    """One worker's line to the coordinator. Used by one thread."""

    def watch(self, fd: int) -> None:
        """Let `wait` return when `fd` is readable."""

    def wait(self, timeout_s: float) -> list[int]:
        """Wait for a message, watched descriptors or the timeout; return what is readable."""

    def receive(self) -> ToWorker | None:
        """Return the next message, None if there is none now; ProtocolError if it is foreign."""

    def send(self, message: ToCoordinator) -> None:
        """Pass `message` on without waiting; ProtocolError if nobody takes it."""

    def close(self) -> None:
        """Hang up, giving what was sent half a second to leave."""
