"""The events of a run, read while it writes them."""

import os
from pathlib import Path
from typing import BinaryIO

from hogbatch.events.event import Event, LeaseDone, WorkerJoined, WorkerLeft, read_event


class EventReader:
    """events.jsonl over several lives of a coordinator, in one file or in several."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._begin()

    def _begin(self) -> None:
        self._events: list[Event] = []
        self._pids: dict[str, int] = {}  # of the attached workers, by name
        self._leases: dict[str, int] = {}  # done by each worker

    def read(self) -> list[Event]:
        """All events of this life so far; always the same list, which must not be changed."""
        if not self._open():
            return self._events
        assert self._file
        while (line := self._file.readline()).endswith(b"\n"):
            event = read_event(line)
            assert event is not None, f"{self._path} is damaged: {line!r}"
            self._events.append(event)
            self._note(event)
        self._file.seek(-len(line), os.SEEK_CUR)  # an incomplete line is read again later
        return self._events

    def _open(self) -> bool:
        """Open the file that currently has the name; False if there is none."""
        if not self._path.exists():
            return False
        if self._file and os.fstat(self._file.fileno()).st_nlink == 0:
            self._file.close()
            self._file = None
        self._file = self._file or self._path.open("rb")
        return True

    def _note(self, event: Event) -> None:
        match event:
            case WorkerJoined(worker=name, pid=pid):
                self._pids[name] = pid
            case WorkerLeft(worker=name):
                self._pids.pop(name, None)
            case LeaseDone(worker=name):
                self._leases[name] = self._leases.get(name, 0) + 1

    def at_work(self, leases: int = 1) -> dict[str, int]:
        """{name: pid} of the attached workers with at least `leases` done leases, oldest first."""
        self.read()
        return {
            name: pid for name, pid in self._pids.items() if self._leases.get(name, 0) >= leases
        }

    def next_life(self) -> list[Event]:
        """All events of the life that has ended; a new one begins."""
        ended = self.read()
        self._begin()
        return ended

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
