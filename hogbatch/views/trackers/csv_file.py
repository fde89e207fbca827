"""metrics.csv: one line per evaluation, one column per name.

A new column, such as that of a worker that has joined, is added by replacing the file.
"""

import csv
import io
from collections.abc import Iterable, Mapping

from hogbatch.events.names import METRICS
from hogbatch.machine.files import replace_file
from hogbatch.views.trackers.base import Point, Result, RunStart, Tracker
from hogbatch.views.trackers.names import ROWS


class CsvFile(Tracker):
    """Writes metrics.csv into the run directory."""

    def __init__(self, run: RunStart) -> None:
        self._path = run.run_dir / METRICS
        self._columns: list[str] = []
        if run.resumed_rows is not None and self._path.exists():
            self._replace([each for each in self._read() if int(each[ROWS]) <= run.resumed_rows])

    def log(self, point: Point) -> None:
        if not point.values.keys() <= set(self._columns):
            lines = self._read() if self._columns else []
            self._columns = list(dict.fromkeys([*self._columns, *point.values]))
            self._replace(lines)
        with self._path.open("a", encoding="utf-8", newline="") as file:
            file.write(self._text([point.values]))

    def close(self, result: Result) -> None:
        """All lines are already written."""

    def _read(self) -> list[dict[str, str]]:
        """The complete lines of the file; sets the columns."""
        text, _, _ = self._path.read_text(encoding="utf-8").rpartition("\n")
        reader = csv.DictReader(io.StringIO(text))
        self._columns = list(reader.fieldnames or ())
        return list(reader)

    def _replace(self, lines: Iterable[Mapping[str, str]]) -> None:
        header = dict(zip(self._columns, self._columns, strict=True))
        replace_file(self._path, [self._text([header, *lines]).encode()])

    def _text(self, lines: Iterable[Mapping[str, object]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows(lines)
        return text.getvalue()
