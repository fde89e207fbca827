"""The events of a run, read while they are written."""

import json
import os
from pathlib import Path
from typing import BinaryIO

from tests.chaos.history import Event


class EventLog:
    """events.jsonl of one life of a coordinator after the other, in one file or in several."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._begin()

    def _begin(self) -> None:
        self._events: list[Event] = []
        self._pids: dict[str, int] = {}  # of the workers that are there, by name
        self._leases: dict[str, int] = {}  # that they have done

    def read(self) -> list[Event]:
        """All of this life up to now; the same list each time, so keep to reading it."""
        if not self._open():
            return self._events
        assert self._file
        while (line := self._file.readline()).endswith(b"\n"):
            self._events.append(json.loads(line))
            self._note(self._events[-1])
        self._file.seek(-len(line), os.SEEK_CUR)  # half a line: the rest comes later
        return self._events

    def _open(self) -> bool:
        """Have the file open that has the name now; False if there is none."""
        if not self._path.exists():
            return False
        if self._file and os.fstat(self._file.fileno()).st_nlink == 0:
            self._file.close()
            self._file = None
        self._file = self._file or self._path.open("rb")
        return True

    def _note(self, event: Event) -> None:
        match event["event"]:
            case "worker_joined":
                self._pids[event["worker"]] = event["pid"]
            case "worker_left":
                self._pids.pop(event["worker"], None)
            case "lease":
                self._leases[event["worker"]] = self._leases.get(event["worker"], 0) + 1

    def at_work(self, leases: int = 1) -> dict[str, int]:
        """Workers by name, the oldest first, with their pids, that have done so many leases."""
        self.read()
        return {
            name: pid for name, pid in self._pids.items() if self._leases.get(name, 0) >= leases
        }

    def next_life(self) -> list[Event]:
        """All of the life that has ended; another begins."""
        ended = self.read()
        self._begin()
        return ended

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
