"""A queue that a thread can wait for together with sockets and ends of processes."""

import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class PollableQueue(Generic[T]):
    """A queue with a descriptor `fd`, which is readable when something was put into the queue.

    Any thread, and also a signal handler, may call `put`; one thread calls the other methods.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._open = threading.RLock()  # held while the descriptor is used or closed

    def put(self, item: T) -> None:
        """Append an item; after `close`, nobody is told of it."""
        self._items.put(item)
        with self._open:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def taken(self) -> Iterator[T]:
        """Take all items, one after the other, without waiting."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        while not self._items.empty():
            yield self._items.get_nowait()

    def close(self) -> None:
        with self._open:
            os.close(self.fd)
            self.fd = -1
