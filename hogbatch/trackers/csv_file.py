"""metrics.csv: one line per evaluation, one column per name.

A column that is new, such as that of a worker that has joined, is added by replacing the file with
one that has it. At any time, the file is complete and has one header.
"""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hogbatch.checkpoint.files import replace_file
from hogbatch.checkpoint.names import METRICS
from hogbatch.trackers.base import Point, RunDescription, RunResult
from hogbatch.trackers.names import ROWS

Lines = Sequence[Mapping[str, object]]


class CsvFile:
    """Writes metrics.csv into the run directory."""

    def __init__(self) -> None:
        self._path = Path()
        self._columns: list[str] = []

    def start(self, run: RunDescription) -> str:
        self._path = Path(run.run_dir) / METRICS
        if run.resumed_rows is not None and self._path.exists():
            lines = [each for each in self._read() if int(each[ROWS]) <= run.resumed_rows]
            self._replace(lines)
        return ""

    def log(self, points: Sequence[Point]) -> None:
        new = [point.values for point in points]
        names = dict.fromkeys(name for values in new for name in values)
        if names.keys() <= set(self._columns):
            _append(self._path, _encoded(self._columns, new))
            return
        lines = self._read() if self._columns else []
        self._columns = list(dict.fromkeys([*self._columns, *names]))
        self._replace([*lines, *new])

    def finish(self, result: RunResult) -> None:
        """All lines are already written."""

    def abandon(self) -> None:
        """All lines are already written."""

    def _read(self) -> list[dict[str, str]]:
        """The complete lines of the file; sets the columns. ValueError if it is damaged."""
        text, _, _ = self._path.read_text(encoding="utf-8").rpartition("\n")
        reader = csv.DictReader(io.StringIO(text))
        self._columns = list(reader.fieldnames or ())
        lines = list(reader)
        if ROWS not in self._columns or not all((each[ROWS] or "").isdecimal() for each in lines):
            raise ValueError(f"{self._path}: expected a whole number in the column {ROWS}")
        return lines

    def _replace(self, lines: Lines) -> None:
        header = dict(zip(self._columns, self._columns, strict=True))
        replace_file(self._path, [_encoded(self._columns, [header, *lines])])


def _encoded(columns: Sequence[str], lines: Lines) -> bytes:
    text = io.StringIO()
    csv.DictWriter(text, columns, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()


def _append(path: Path, content: bytes) -> None:
    """Append whole lines, or nothing: OSError. FileNotFoundError if the file was removed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, content) < len(content):
            os.ftruncate(descriptor, size)
            raise OSError(f"{path}: there is no space for another line")
    finally:
        os.close(descriptor)
