"""Atomic writing of files and directories, which are on disk when a call returns."""

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

Chunks = Iterable[bytes | memoryview]  # content of a file, piece by piece

TEMPORARY_SUFFIX: Final = ".tmp"  # of a file or directory that is being written


def write_through(path: Path, chunks: Chunks) -> None:
    """Write a file and sync its content, but not its directory entry. OSError on failure."""
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, chunks: Chunks) -> None:
    """Replace the file `path` atomically; on failure, OSError and the old file stays unchanged."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        write_through(temporary, chunks)
        os.replace(temporary, path)
        sync_directory(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Sync the entries of a directory to disk. OSError on failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_directory(path: Path, files: Mapping[str, Chunks]) -> None:
    """Create the directory `path` with `files`, by name, with mode 0700.

    The directory appears under its name once all of it is on disk. A process that is killed before
    that leaves a directory next to `path` whose name starts with "." and ends in TEMPORARY_SUFFIX.
    On failure, OSError and nothing is left, except that all of it is left if only the last sync
    failed.
    """
    unfinished = Path(mkdtemp(TEMPORARY_SUFFIX, f".{path.name}.", path.parent))  # mode 0700
    try:
        for name, chunks in files.items():
            write_through(unfinished / name, chunks)
        sync_directory(unfinished)
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_directory(path.parent)


def remove(path: Path) -> None:
    """Remove a file, or a directory with all that it contains. OSError on failure."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
