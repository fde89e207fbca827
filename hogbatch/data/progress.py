"""Progress of reading a file."""

import io
from pathlib import Path
from typing import Any


class ReadProgress:
    """The bytes read of a file, for a display that looks at them from time to time.

    Several threads may call `add`. They take no lock, so a call may be lost.
    """

    def __init__(self) -> None:
        self.name: str | None = None  # of the file that is being read; None before and after that
        self.size: int | None = None  # bytes to read; None: not known
        self.done = 0.0  # bytes read

    def begin(self, name: str, size: int | None) -> None:
        """A file of `size` bytes is being read from its start."""
        self.name, self.size, self.done = name, size, 0.0

    def add(self, count: float) -> None:
        """`count` more bytes have been read."""
        self.done += count

    def end(self) -> None:
        """The file has been read."""
        self.name = None

    @property
    def fraction(self) -> float | None:
        """The fraction that has been read, from 0 to 1; None if it is not known."""
        known = self.name and self.size and self.done
        return min(1.0, self.done / self.size) if known and self.size else None


class CountedFile(io.FileIO):
    """A file for reading that counts the bytes read."""

    def __init__(self, path: Path, progress: ReadProgress) -> None:
        super().__init__(path, "rb")
        self._progress = progress

    def readinto(self, buffer: Any) -> int | None:
        """Read up to len(buffer) bytes."""
        count = super().readinto(buffer)
        self._progress.add(count or 0)
        return count

    def readall(self) -> bytes:
        """Read the rest of the file."""
        content = super().readall()
        self._progress.add(len(content))
        return content
