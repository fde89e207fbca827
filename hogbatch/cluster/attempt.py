"""One attempt of a merge: sending to the servers that take part, and waiting for what they send.

Each message has a note with the merge, the attempt, the step and the piece of the step. Notes of
earlier attempts are dropped, those of later ones are kept until this server gets there.
"""

import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import NamedTuple

from hogbatch.cluster.buffers import FLOAT, ExchangeBuffers
from hogbatch.cluster.planes.base import Plane, PlaneError, pauses_between_polls
from hogbatch.errors import HogbatchError

_NOTE = struct.Struct("<QIII")


class MergeAborted(HogbatchError):
    """The attempt was to end before it was complete; the change of this server is unchanged."""


class MessageKey(NamedTuple):
    """A message of one attempt."""

    sender: int  # number of the server
    step: int
    piece: int


class Mailbox:
    """The messages that have arrived and are still waited for."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._arrived = defaultdict[tuple[int, int], set[MessageKey]](set)  # by merge and attempt

    def arrived(self, when: tuple[int, int]) -> set[MessageKey]:
        """The messages of this attempt, to be removed by the caller; forgets earlier attempts."""
        for each in [each for each in self._arrived if each < when]:
            del self._arrived[each]
        return self._arrived[when]

    def read(self) -> None:
        """Read the notes that have arrived."""
        for sender, note in self._plane.notes():
            if len(note) == _NOTE.size:
                merge, attempt, step, piece = _NOTE.unpack(note)
                self._arrived[merge, attempt].add(MessageKey(sender, step, piece))


class Attempt:
    """What the steps of a reduction need; servers are given by their ranks."""

    def __init__(
        self,
        buffers: ExchangeBuffers,
        plane: Plane,
        mailbox: Mailbox,
        numbers: Sequence[int],  # by rank
        rank: int,  # of this server
        when: tuple[int, int],  # merge, attempt
        limits: tuple[threading.Event, float],  # set to abort; seconds to wait for a message
    ) -> None:
        self.buffers = buffers
        self.rank = rank
        self.servers = len(numbers)
        self._plane, self._mailbox, self._numbers = plane, mailbox, numbers
        self._when, (self._abort, self._timeout_s) = when, limits
        self._arrived = mailbox.arrived(when)

    @property
    def others(self) -> list[int]:
        """The places of all other servers, from the next one on, so that all are equally busy."""
        return [(self.rank + each) % self.servers for each in range(1, self.servers)]

    def send(
        self,
        rank: int,
        source: tuple[str, int, int],
        target: tuple[str, int],
        step: int,
        piece: int = 0,
    ) -> None:
        """Start to write numbers [start, stop) of an area to one of another server.

        `source` is (area, start, stop), `target` (area, offset), counted in float32 numbers. They
        may be changed after :meth:`finish`. PlaneError or MergeAborted.
        """
        area, start, stop = source
        first = self.buffers.offset(area)
        into = self.buffers.offset(target[0]) + FLOAT * target[1]
        self.send_bytes(rank, (first + FLOAT * start, first + FLOAT * stop), into, step, piece)

    def send_bytes(
        self, rank: int, source: tuple[int, int], target: int, step: int, piece: int = 0
    ) -> None:
        """The same for bytes [start, stop) of the buffers."""
        note = _NOTE.pack(*self._when, step, piece)
        with self._errors():
            self._plane.start(self._numbers[rank], source, target, note)

    def finish(self) -> None:
        """Wait until everything is sent; errors as of :meth:`send`."""
        with self._errors():
            self._plane.finish()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """MergeAborted instead of PlaneError if the attempt has been given up."""
        self._check()
        try:
            yield
        except PlaneError:
            self._check()
            raise

    def message(self, rank: int, step: int, piece: int = 0) -> MessageKey:
        """The message of the server at `rank`."""
        return MessageKey(self._numbers[rank], step, piece)

    def take_one_of(self, awaited: Set[MessageKey]) -> MessageKey | None:
        """One of these messages, if it has arrived; each is taken once. Errors as of `send`."""
        with self._errors():
            self._mailbox.read()
        found = awaited & self._arrived
        if not found:
            return None
        first = min(found)
        self._arrived.remove(first)
        return first

    def wait_for_one_of(self, awaited: Set[MessageKey]) -> MessageKey:
        """Wait for one of these messages; PlaneError if none comes in time, or MergeAborted."""
        deadline = time.monotonic() + self._timeout_s
        pauses = pauses_between_polls()
        while (message := self.take_one_of(awaited)) is None:
            if time.monotonic() > deadline:
                late = min(awaited).sender
                raise PlaneError(late, f"did not answer within {self._timeout_s:g} s")
            time.sleep(next(pauses))
        return message

    def wait(self, rank: int, step: int, piece: int = 0) -> None:
        """Wait for a message; errors as of :meth:`wait_for_one_of`."""
        self.wait_for_one_of({self.message(rank, step, piece)})

    def _check(self) -> None:
        if self._abort.is_set():
            merge, attempt = self._when
            raise MergeAborted(f"attempt {attempt} of merge {merge} was aborted")
