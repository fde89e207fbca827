"""run.json: the marker of a run directory, with the names of the files that belong to the run.

Only listed files are overwritten, moved or removed. A run adds its file names before it creates
the first of these files.
"""

import errno
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import msgspec

from hogbatch.errors import UsageError
from hogbatch.machine.files import replace_file, write_through

NAME: Final = "run.json"
FORMAT: Final = "hogbatch-run-1"
# Errors of file systems without hard links.
LINK_UNSUPPORTED: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class RunMarker(msgspec.Struct, frozen=True):
    """The content of run.json."""

    format: str
    files: list[str]


def listed(run_dir: Path) -> frozenset[str] | None:
    """The names that belong to the run in `run_dir`; None if there is no marker.

    UsageError if the file is not a marker, OSError if it cannot be read.
    """
    path = run_dir / NAME
    try:
        content = msgspec.json.decode(path.read_bytes(), type=RunMarker)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        content = RunMarker("", [])
    if content.format != FORMAT or not all(_is_plain(name) for name in content.files):
        raise UsageError(
            f"{path}: expected a list of a run's files, format {FORMAT}; got a different file: "
            "choose another --run-dir"
        )
    return frozenset(content.files)


def claim(run_dir: Path, names: Collection[str], first: str) -> bool:
    """Create the marker with `names`; return False if it exists.

    Several processes may call this concurrently. `first` is the file that one of them locks next;
    an existing marker must list it. UsageError if a file that does not belong to a run has one of
    the names, OSError if writing fails.
    """
    # List files before reading the marker: another process may create both.
    existing = _existing(run_dir, names)
    known = listed(run_dir)
    if known is not None:
        _refuse(run_dir, set(existing) & {first} - known)
        return False
    _refuse(run_dir, existing)
    temporary = run_dir / f".{NAME}.{os.getpid()}.tmp"
    try:
        write_through(temporary, [_encoded(names)])
        return _name(temporary, run_dir / NAME)
    finally:
        temporary.unlink(missing_ok=True)


def extend(run_dir: Path, names: Collection[str]) -> None:
    """Add `names` to the marker.

    Only the process that holds the run directory may call this. Errors as in :func:`claim`.
    """
    known = listed(run_dir) or frozenset()
    _refuse(run_dir, set(_existing(run_dir, names)) - known)
    if not known.issuperset(names):
        replace_file(run_dir / NAME, [_encoded(known.union(names))])


def _name(temporary: Path, path: Path) -> bool:
    """Rename the temporary file unless `path` exists; return whether it was renamed."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in LINK_UNSUPPORTED:
            raise
        os.replace(temporary, path)
    return True


def _encoded(names: Iterable[str]) -> bytes:
    encoded = msgspec.json.encode(RunMarker(FORMAT, sorted(names)))
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _existing(run_dir: Path, names: Iterable[str]) -> list[str]:
    return [name for name in names if os.path.lexists(run_dir / name)]


def _is_plain(name: str) -> bool:
    """Whether `name` is a valid name of an entry in the directory itself."""
    return name not in ("", ".", "..", NAME) and "/" not in name and "\0" not in name


def _refuse(run_dir: Path, found: Iterable[str]) -> None:
    """UsageError if there are `found` files, which the marker does not list."""
    if names := sorted(found):
        raise UsageError(
            f"{run_dir / names[0]} does not belong to a run (it is not listed in "
            f"{run_dir / NAME}) and would be overwritten; choose another --run-dir"
        )
