"""Reading that never fails: an exception becomes `Unknown`, with its message."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hogbatch.doctor.facts import Unknown
from hogbatch.machine.printable import printable

MAX_REASON = 200  # characters

Fact = TypeVar("Fact")


def attempt(read: Callable[[], Fact]) -> Fact | Unknown:
    """Return what `read` returns, or why it failed.

    Every exception is caught, because the report is needed most where something unexpected is
    wrong.
    """
    try:
        return read()
    except Exception as error:
        return Unknown(reason(error))


def reason(error: BaseException) -> str:
    """The reason of an exception in one line."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return printable(f"{place}{error.strerror}", MAX_REASON)
    lines = str(error).strip().splitlines()
    return printable(lines[0] if lines else type(error).__name__, MAX_REASON)


def read_line(path: Path) -> str:
    """The first line of a file, without blanks around it."""
    return printable(path.read_text(errors="replace").partition("\n")[0].strip(), MAX_REASON)


def existing_ancestor(path: Path) -> Path:
    """The path itself, or the closest directory above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())
