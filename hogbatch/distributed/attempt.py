"""One attempt of a merge: sending to the servers that take part, and waiting for what they send.

Each message has a note with the merge, the attempt, the step and the piece of the step. Notes of
earlier attempts are dropped, those of later ones are kept until this server gets there.
"""

import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from hogbatch.distributed.buffers import FLOAT, ExchangeBuffers
from hogbatch.distributed.planes.base import Plane, PlaneError, pauses_between_polls
from hogbatch.errors import HogbatchError

COPY: Final = b"copy"  # the note after a copy of the merged model
_NOTE = struct.Struct("<QIII")


class MergeAborted(HogbatchError):
    """The attempt was to end before it was complete; the change of this server is unchanged."""


class Position(NamedTuple):
    """A message of one server, by its place in the merge; ordered by merge and attempt."""

    merge: int
    attempt: int
    step: int
    piece: int


class Mailbox:
    """The notes that have arrived and are still waited for."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._arrived = set[tuple[int, Position]]()  # by the number of the sender
        self._copies = set[int]()

    def drop_before(self, merge: int, attempt: int) -> None:
        """Forget the notes of earlier attempts."""
        self._arrived = {
            each for each in self._arrived if (each[1].merge, each[1].attempt) >= (merge, attempt)
        }

    def take(self, sender: int, position: Position) -> bool:
        """Whether the note has arrived; if so, it is removed."""
        self._read()
        wanted = (sender, position)
        if wanted not in self._arrived:
            return False
        self._arrived.remove(wanted)
        return True

    def take_copy(self, sender: int) -> bool:
        """Whether `sender` has copied its merged model here since the last call."""
        self._read()
        arrived = sender in self._copies
        self._copies.discard(sender)
        return arrived

    def _read(self) -> None:
        for sender, note in self._plane.notes():
            if note == COPY:
                self._copies.add(sender)
            elif len(note) == _NOTE.size:
                self._arrived.add((sender, Position(*_NOTE.unpack(note))))


class Attempt:
    """What the steps of a reduction need; servers are given by their places."""

    def __init__(
        self,
        buffers: ExchangeBuffers,
        plane: Plane,
        mailbox: Mailbox,
        numbers: Sequence[int],  # by place
        place: int,  # of this server
        when: tuple[int, int],  # merge, attempt
        limits: tuple[threading.Event, float],  # set to abort; seconds to wait for a message
    ) -> None:
        self.buffers = buffers
        self.place = place
        self.servers = len(numbers)
        self._plane, self._mailbox, self._numbers = plane, mailbox, numbers
        self._when, (self._abort, self._timeout_s) = when, limits
        mailbox.drop_before(*when)

    @property
    def others(self) -> list[int]:
        """The places of all other servers, from the next one on, so that all are equally busy."""
        return [(self.place + each) % self.servers for each in range(1, self.servers)]

    def send(
        self,
        place: int,
        source: tuple[str, int, int],
        target: tuple[str, int],
        step: int,
        piece: int = 0,
    ) -> None:
        """Write numbers [start, stop) of an area to an offset in an area of another server.

        `source` is (area, start, stop), `target` (area, offset), counted in float32 numbers. No
        numbers: only the note. PlaneError or MergeAborted.
        """
        area, start, stop = source
        first = self.buffers.offset(area)
        into = self.buffers.offset(target[0]) + FLOAT * target[1]
        self.send_bytes(place, (first + FLOAT * start, first + FLOAT * stop), into, step, piece)

    def send_bytes(
        self, place: int, source: tuple[int, int], target: int, step: int, piece: int = 0
    ) -> None:
        """The same for bytes [start, stop) of the buffers."""
        self._check()
        try:
            self._plane.write(
                self._numbers[place], source, target, _NOTE.pack(*self._when, step, piece)
            )
        except PlaneError:
            self._check()  # the server may be unreachable because the attempt has been given up
            raise

    def wait(self, place: int, step: int, piece: int = 0) -> None:
        """Wait for a message; PlaneError if it does not come in time, or MergeAborted."""
        sender, position = self._numbers[place], Position(*self._when, step, piece)
        wait_until(
            lambda: self._mailbox.take(sender, position), sender, self._timeout_s, self._check
        )

    def invalid(self, place: int, what: str) -> PlaneError:
        """The error of a server that has sent something invalid."""
        return PlaneError(self._numbers[place], f"sent {what}")

    def _check(self) -> None:
        if self._abort.is_set():
            merge, attempt = self._when
            raise MergeAborted(f"attempt {attempt} of merge {merge} was aborted")


def wait_until(
    arrived: Callable[[], bool], sender: int, timeout_s: float, check: Callable[[], None]
) -> None:
    """Wait until `arrived` is true, with pauses; PlaneError if that takes more than `timeout_s`.

    `check` is called before each pause, and raises if there is no more reason to wait.
    """
    deadline = time.monotonic() + timeout_s
    for pause in pauses_between_polls():
        if arrived():
            return
        check()
        if time.monotonic() > deadline:
            raise PlaneError(sender, f"did not answer within {timeout_s:g} s")
        time.sleep(pause)
