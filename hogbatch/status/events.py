"""Reads events.jsonl while a run writes it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from hogbatch.errors import DataError

HEAD: Final = 256  # bytes at the start of a file by which it is recognised; the first has a time
TAIL: Final = 1 << 16  # bytes; longer than any event that is the last one of a run

Event = dict[str, Any]


class EventReader:
    """The complete lines of a file that grows, each of them once.

    An incomplete last line is read when it is complete; a coordinator that resumes the run removes
    it. Lines that are not events are counted in `damaged`. The file is open only during a read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self._position = 0
        self._head = b""
        self.damaged = 0

    def was_replaced(self) -> bool:
        """Whether another run has replaced the file; if so, reading begins at the new start."""
        if self._position == 0:
            return False
        try:
            with self.path.open("rb") as file:
                same = file.read(len(self._head)) == self._head
                if same and file.seek(0, os.SEEK_END) >= self._position:
                    return False
        except OSError:  # it is being replaced; `read` reports other errors
            return False
        self._begin()
        return True

    def read(self) -> Iterator[Event]:
        """The events that have been written since the last call. DataError if that is impossible.

        A file that does not exist has no events.
        """
        try:
            with self.path.open("rb") as file:
                yield from self._rest(file)
        except FileNotFoundError:
            return
        except OSError as error:
            raise DataError(f"{self.path}: cannot read the events: {error.strerror}") from None

    def _rest(self, file: BinaryIO) -> Iterator[Event]:
        if self._position == 0:
            self._head = file.read(HEAD)
        file.seek(self._position)
        for line in file:
            if not line.endswith(b"\n"):
                return
            self._position += len(line)
            self._head = self._head[: self._position]  # what follows may still be replaced
            event = parse(line)
            if event is None:
                self.damaged += 1
            else:
                yield event


def parse(line: bytes) -> Event | None:
    """The event on a line; None if it is damaged."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            event = json.loads(line)  # accepts NaN and Infinity, which json.dumps writes
        except (ValueError, RecursionError):
            return None
    named = isinstance(event, dict) and isinstance(event.get("event"), str)
    return event if named and isinstance(event.get("at"), int | float) else None


def first_event(path: Path) -> Event | None:
    """The event on the first line; None if there is none. OSError."""
    with path.open("rb") as file:
        line = file.readline(TAIL)
    return parse(line) if line.endswith(b"\n") else None


def last_event(path: Path) -> Event | None:
    """The event on the last line; None if that line is incomplete or damaged. OSError."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        lines = file.read().split(b"\n")
    return parse(lines[-2]) if len(lines) > 1 and not lines[-1] else None
