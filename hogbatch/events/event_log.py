"""events.jsonl, which a run writes while it trains.

From time to time, and at its end, it also has the state that follows from the events before, so
that only the end of a long log is read (:func:`last_state`).
"""

import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, TextIO

import msgspec
from msgspec.structs import replace

from hogbatch.events.combine import BURST, Combiner
from hogbatch.events.event import AnyEvent, Ended, read_event
from hogbatch.events.state import RunState
from hogbatch.version import version

log = logging.getLogger(__name__)

STATE: Final = "state"  # the name of a state, on a line like those of events
# A state is written after events of ten times the bytes of the one before.
EVENTS_PER_STATE: Final = 10
MIN_EVENTS: Final = 1 << 18  # bytes
MIN_LAST_EVENTS: Final = 1 << 14  # bytes of events after which there is a state at the end
BLOCK: Final = 1 << 20  # bytes that are searched at once


class EventLog:
    """events.jsonl: one JSON object per line, {"event": name, "at": Unix seconds, ...}."""

    def __init__(
        self,
        path: Path,
        append: bool = False,
        marks: Mapping[str, object] = MappingProxyType({}),
        now: Callable[[], float] = time.time,
        combine: bool = True,
    ) -> None:
        """Create a new file, or `append` to the complete lines of an existing one.

        `marks` are fields of every event. `combine`: frequent events are combined.
        """
        self._marks, self._now = marks, now
        self._combiner = Combiner(BURST if combine else math.inf)
        self._file: TextIO | None = None
        self._run = RunState()  # after the events that were written
        self._since = self._state_size = 0  # bytes after the last state, and its own
        try:
            if append:
                self._continue(path)
            self._file = path.open("a" if append else "w", encoding="utf-8", buffering=1)
        except OSError as error:
            log.warning("%s: cannot log events: %s", path, error.strerror)

    def _continue(self, path: Path) -> None:
        """Remove the incomplete last line of a writer that was killed; read the others."""
        with suppress(FileNotFoundError), path.open("r+b") as file:
            file.truncate(_find_last(b"\n", file) + 1)
            self._run, position = last_state(file)
            self._since = read_on(file, self._run, position)

    def write(self, event: AnyEvent) -> AnyEvent:
        """Take one event, which is written now or combined with later ones.

        Returns it with the time. After an error, which is logged once, no more events are written.
        """
        event = replace(event, at=round(self._now(), 4))
        self._append(self._combiner.add(event))
        return event

    def write_due(self) -> None:
        """Write the events that were held back, if it is time."""
        self._append(self._combiner.due(self._now()))

    def close(self) -> None:
        """Write all events that were held back, and close the file."""
        self._append(self._combiner.rest())
        self._stop()

    def _append(self, events: list[AnyEvent]) -> None:
        for event in events:
            # Before the event, because the last line of a run that has ended is its last event.
            usual = max(MIN_EVENTS, EVENTS_PER_STATE * self._state_size)
            if self._since > (MIN_LAST_EVENTS if isinstance(event, Ended) else usual):
                state = msgspec.to_builtins(self._run, enc_hook=float)  # enc_hook: as of events
                self._state_size = self._line(STATE, event.at, {"of": version(), STATE: state})
                self._since = 0
            self._since += self._line(event.name, event.at, event.fields)
            self._run.apply(event)

    def _line(self, name: str, at: float, fields: Mapping[str, Any]) -> int:
        """Write a line; return its length."""
        if self._file is None:
            return 0
        line = json.dumps({"event": name, "at": at, **self._marks, **fields}) + "\n"
        try:
            self._file.write(line)
        except OSError as error:
            log.warning("%s: event logging has stopped: %s", self._file.name, error.strerror)
            self._stop()
        self._combiner.room -= len(line)
        return len(line)

    def _stop(self) -> None:
        """Close the file; no more events are written."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def last_state(file: BinaryIO) -> tuple[RunState, int]:
    """The last state in a log and the position after it; without one, that of its begin.

    So it is also with a state of another version of hogbatch, which may have other values.
    """
    file.seek(_find_last(f'\n{{"event": "{STATE}"'.encode(), file) + 1)
    with suppress(ValueError, KeyError, TypeError, msgspec.ValidationError):  # an incomplete line
        found = json.loads(file.readline())
        if found["event"] == STATE and found["of"] == version():
            return msgspec.convert(found[STATE], RunState), file.tell()
    return RunState(), 0


def read_on(file: BinaryIO, run: RunState, position: int) -> int:
    """Apply the complete lines from `position` on to `run`; return the position after them."""
    file.seek(position)
    for line in file:
        if not line.endswith(b"\n"):
            break
        position += len(line)
        if (event := read_event(line)) is None:
            run.damaged += 1
        else:
            run.apply(event)
    return position


def _find_last(text: bytes, file: BinaryIO) -> int:
    """The position of the last occurrence of `text` in the file; -1 if there is none."""
    position, later = file.seek(0, os.SEEK_END), b""
    while position:
        size = min(position, BLOCK)
        position = file.seek(position - size)
        block = file.read(size) + later
        if (found := block.rfind(text)) >= 0:
            return position + found
        later = block[: len(text) - 1]
    return -1
