"""Lines of a text file that are not as they should be: named, counted, and left out if few."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from hogbatch.errors import DataError

FIRST: Final = 20  # that are named
IN_A_SENTENCE: Final = 3


class Misplaced(ValueError):
    """Something is wrong at a place in a line: at `at` from 0, or nobody knows where."""

    def __init__(self, at: int | None, message: str) -> None:
        super().__init__(message)
        self.column = None if at is None else at + 1


class Mistake(NamedTuple):
    """What is wrong with a line."""

    line: int  # from 1
    column: int | None  # from 1, where it is known
    why: str

    def where(self, source: object) -> str:
        """file:line:column: why."""
        column = "" if self.column is None else f":{self.column}"
        return f"{source}:{self.line}{column}: {self.why}"


class Skipped(NamedTuple):
    """Lines that were left out."""

    total: int = 0
    first: tuple[Mistake, ...] = ()  # in the order of the file, the first `FIRST` of them

    @classmethod
    def of(cls, lines: Sequence[int], mistake: Callable[[int], Misplaced]) -> "Skipped":
        """Lines by their ascending numbers; `mistake` tells what is wrong with one."""
        first = ((line, mistake(line)) for line in lines[:FIRST])
        named = tuple(Mistake(line, found.column, str(found)) for line, found in first)
        return cls(len(lines), named)

    @classmethod
    def of_parts(cls, parts: Iterable["Skipped"]) -> "Skipped":
        """Lines of several parts of a file."""
        some = [part for part in parts if part.total]
        first = sorted(mistake for part in some for mistake in part.first)[:FIRST]
        return cls(sum(part.total for part in some), tuple(first))

    def check(self, source: object, rows: int, fraction: float) -> None:
        """Raise DataError if more than `share` of all lines are left out, or all; `rows` remain."""
        lines = rows + self.total
        if not self.total or (rows and self.total / lines <= fraction):
            return
        if not fraction:
            raise DataError(self.first[0].where(source))
        first = "; ".join(mistake.where(source) for mistake in self.first[:IN_A_SENTENCE])
        if not rows:
            raise DataError(f"{source}: not one of {lines} lines is as it should be: {first}")
        raise DataError(
            f"{source}: {self.total} of {lines} lines ({self.total / lines:.2%}) are not as they "
            f"should be, more than --bad-lines {fraction:g} allows: {first}"
        )

    def notes(self, source: object, rows: int) -> tuple[str, ...]:
        """What to say of them, a line each; `rows` remain."""
        if not self.total:
            return ()
        lines = rows + self.total
        fraction = f"{self.total} of {lines} lines are left out ({self.total / lines:.2%})"
        more = f", of which the first {FIRST} are" if self.total > FIRST else ""
        named = (f"  {mistake.where(source)}" for mistake in self.first)
        return (f"{source}: {fraction}{more}:", *named)


NOTHING: Final = Skipped()
