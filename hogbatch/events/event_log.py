"""events.jsonl, which a run writes while it trains."""

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

from msgspec.structs import replace

from hogbatch.events.event import AnyEvent

log = logging.getLogger(__name__)

MAX_LINE = 1 << 20  # bytes


class EventLog:
    """events.jsonl: one JSON object per line, {"event": name, "at": Unix seconds, ...}."""

    def __init__(
        self,
        path: Path,
        append: bool = False,
        marks: Mapping[str, object] = MappingProxyType({}),
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create a new file, or `append` to the complete lines of an existing one.

        `marks` are fields of every event.
        """
        self._marks, self._now = marks, now
        self._file: TextIO | None = None
        try:
            if append:
                _drop_partial_line(path)
            self._file = path.open("a" if append else "w", encoding="utf-8", buffering=1)
        except OSError as error:
            log.warning("%s: cannot log events: %s", path, error.strerror)

    def write(self, event: AnyEvent) -> AnyEvent:
        """Append one event and return it with the time.

        After an error, which is logged once, no more events are written.
        """
        event = replace(event, at=round(self._now(), 4))
        if self._file is not None:
            fields = {"event": event.name, "at": event.at, **self._marks, **event.fields}
            try:
                self._file.write(json.dumps(fields) + "\n")
            except OSError as error:
                log.warning("%s: event logging has stopped: %s", self._file.name, error.strerror)
                self.close()
        return event

    def close(self) -> None:
        """Close the file; no more events are written."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def _drop_partial_line(path: Path) -> None:
    """Remove the incomplete last line of a writer that was killed."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - MAX_LINE)
        file.seek(start)
        file.truncate(start + file.read().rfind(b"\n") + 1)
