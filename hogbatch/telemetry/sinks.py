"""Files that a run writes while it goes on and when it ends."""

import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

LONGEST_LINE = 1 << 20  # bytes


class EventLog:
    """events.jsonl: one JSON object a line, {"event": name, "at": unix seconds, ...}, in order."""

    def __init__(self, path: Path, append: bool = False) -> None:
        """Begin anew, or `append` to the whole lines that are there."""
        if append:
            _drop_half_a_line(path)
        self._file = path.open("a" if append else "w", encoding="utf-8", buffering=1)

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """Append one event; a full disk is logged once, and the run goes on without the log."""
        if self._file.closed:
            return
        line = json.dumps({"event": event, "at": round(time.time(), 4), **fields}) + "\n"
        try:
            self._file.write(line)
        except OSError as error:
            log.warning("no more events are logged: %s", error.strerror)
            with suppress(OSError):
                self._file.close()

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._file.close()


def _drop_half_a_line(path: Path) -> None:
    """Cut off what a killed writer has not finished."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - LONGEST_LINE)
        file.seek(start)
        file.truncate(start + file.read().rfind(b"\n") + 1)


def write_summary(path: Path, summary: Mapping[str, object]) -> None:
    """Write summary.json; whoever reads it sees the old file or the new one, never half of one."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)
