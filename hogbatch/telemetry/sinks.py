"""Files that a run writes while it goes on and when it ends."""

import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)


class EventLog:
    """events.jsonl: one JSON object a line, {"event": name, "at": unix seconds, ...}, in order."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)

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


def write_summary(path: Path, summary: Mapping[str, object]) -> None:
    """Write summary.json; whoever reads it sees the old file or the new one, never half of one."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)
