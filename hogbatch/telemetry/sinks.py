"""The file that a run writes while it goes on."""

import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

log = logging.getLogger(__name__)

LONGEST_LINE = 1 << 20  # bytes


class EventLog:
    """events.jsonl: one JSON object a line, {"event": name, "at": unix seconds, ...}, in order."""

    def __init__(self, path: Path, append: bool = False) -> None:
        """Begin a new file, or `append` to the whole lines that are there."""
        self._file: TextIO | None = None
        try:
            if append:
                _drop_half_a_line(path)
            self._file = path.open("a" if append else "w", encoding="utf-8", buffering=1)
        except OSError as error:
            log.warning("%s: no events are logged: %s", path, error.strerror)

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """Append one event; a full disk is logged once, and the run goes on without the log."""
        if self._file is None:
            return
        line = json.dumps({"event": event, "at": round(time.time(), 4), **fields}) + "\n"
        try:
            self._file.write(line)
        except OSError as error:
            log.warning("%s: no more events are logged: %s", self._file.name, error.strerror)
            self.close()

    def close(self) -> None:
        """Close the file; no more events are written."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def _drop_half_a_line(path: Path) -> None:
    """Cut off what a killed writer has not finished."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - LONGEST_LINE)
        file.seek(start)
        file.truncate(start + file.read().rfind(b"\n") + 1)
