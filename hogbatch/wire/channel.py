"""The interface of the coordinator's side of the control plane."""

from collections.abc import Iterator
from typing import Protocol

from hogbatch.wire.messages import ToCoordinator, ToWorker


class CoordinatorChannel(Protocol):
    """The coordinator's side: receives the messages of all workers. Used by one thread."""

    def watch(self, fd: int) -> None:
        """Make `wait` return when `fd` becomes readable."""

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`."""

    def wait(self, timeout_s: float) -> list[int]:
        """Wait for messages, watched descriptors or the timeout.

        Returns the watched descriptors that are readable.
        """

    def receive(self) -> Iterator[tuple[str, ToCoordinator]]:
        """Yield received messages as (key of the worker, message), without waiting."""

    def send(self, worker: str, message: ToWorker) -> bool:
        """Send `message` without waiting; return False if that worker cannot be reached."""
