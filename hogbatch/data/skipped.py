"""Malformed lines of a text file: counted, reported, and skipped if there are few."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from hogbatch.errors import DataError

MAX_REPORTED: Final = 20  # malformed lines with a message each
MAX_IN_MESSAGE: Final = 3  # malformed lines in an error message


class LineError(ValueError):
    """An error in a line, at character `at` from 0; None if the place is unknown."""

    def __init__(self, at: int | None, message: str) -> None:
        super().__init__(message)
        self.column = None if at is None else at + 1


class MalformedLine(NamedTuple):
    """A malformed line, and the reason."""

    line: int  # from 1
    column: int | None  # from 1, if known
    reason: str

    def describe(self, source: object) -> str:
        """file:line:column: reason."""
        column = "" if self.column is None else f":{self.column}"
        return f"{source}:{self.line}{column}: {self.reason}"


class SkippedLines(NamedTuple):
    """The lines of a file that were skipped."""

    total: int = 0
    first: tuple[MalformedLine, ...] = ()  # the first `MAX_REPORTED`, in the order of the file

    @classmethod
    def of(cls, lines: Sequence[int], diagnose: Callable[[int], LineError]) -> "SkippedLines":
        """Create from ascending line numbers; `diagnose` returns the error of a line."""
        first = ((line, diagnose(line)) for line in lines[:MAX_REPORTED])
        reported = tuple(MalformedLine(line, error.column, str(error)) for line, error in first)
        return cls(len(lines), reported)

    @classmethod
    def of_parts(cls, parts: Iterable["SkippedLines"]) -> "SkippedLines":
        """Combine the skipped lines of several parts of a file."""
        some = [part for part in parts if part.total]
        first = sorted(line for part in some for line in part.first)[:MAX_REPORTED]
        return cls(sum(part.total for part in some), tuple(first))

    def validate(self) -> None:
        """ValueError unless the first lines are as many as are reported of `total`."""
        expected = min(self.total, MAX_REPORTED)
        if len(self.first) != expected:
            raise ValueError(f"skipped: expected {expected} lines; got {len(self.first)}")

    def check(self, source: object, rows: int, fraction: float) -> None:
        """Raise DataError if more than `fraction` of the lines are skipped, or if `rows` is 0."""
        lines = rows + self.total
        if not self.total or (rows and self.total / lines <= fraction):
            return
        if not fraction:
            raise DataError(self.first[0].describe(source))
        first = "; ".join(line.describe(source) for line in self.first[:MAX_IN_MESSAGE])
        if not rows:
            raise DataError(f"{source}: all {lines} lines are malformed: {first}")
        raise DataError(
            f"{source}: {self.total} of {lines} lines ({self.total / lines:.2%}) are "
            f"malformed, more than --bad-lines {fraction:g} allows: {first}"
        )

    def notes(self, source: object, rows: int) -> tuple[str, ...]:
        """Messages for the user, one line each; `rows` is the number of rows that were kept."""
        if not self.total:
            return ()
        lines = rows + self.total
        skipped = f"{self.total} of {lines} lines skipped ({self.total / lines:.2%})"
        more = f"; the first {MAX_REPORTED} are" if self.total > MAX_REPORTED else ""
        reported = (f"  {line.describe(source)}" for line in self.first)
        return (f"{source}: {skipped}{more}:", *reported)


NONE_SKIPPED: Final = SkippedLines()
