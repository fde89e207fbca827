"""Atomic writing of files and directories, which are on disk when a call returns."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

Chunks = Iterable[bytes | memoryview]  # content of a file, piece by piece
Files = Mapping[str, Callable[[], Chunks]]  # by name; written in this order, possibly twice

TEMPORARY_SUFFIX: Final = ".tmp"  # of a file or directory that is being written
# Errors of a file system without unnamed files, or of a system without /proc to link them.
TMPFILE_UNSUPPORTED: Final = (
    errno.EOPNOTSUPP,
    errno.EISDIR,
    errno.ENOENT,
    errno.EPERM,
    errno.EXDEV,
)


def write_through(path: Path, chunks: Chunks) -> None:
    """Write a file and sync its content, but not its directory entry. OSError on failure."""
    with path.open("wb") as file:
        _write(file, chunks)


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


def write_directory(path: Path, files: Files) -> None:
    """Create the directory `path` with `files`, by name, with mode 0700.

    The directory appears under its name once all of it is on disk. A process that is killed before
    that leaves nothing, or a directory next to `path` whose name starts with "." and ends in
    TEMPORARY_SUFFIX. On failure, OSError and nothing is left, except that all of it is left if only
    the last sync failed.
    """
    try:
        _write_unnamed(path, files)
    except OSError as error:
        if error.errno not in TMPFILE_UNSUPPORTED:
            raise
        _write_named(path, files)


def _write_unnamed(path: Path, files: Files) -> None:
    """Write unnamed files, which the kernel frees with the process, and link them at the end."""
    with ExitStack() as until_named:
        descriptors = {}
        for name, chunks in files.items():
            descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o600)
            _write(until_named.enter_context(open(descriptor, "wb")), chunks())
            descriptors[name] = descriptor
        with _appear(path) as unfinished:
            for name, descriptor in descriptors.items():
                # With src_dir_fd Python calls linkat, which can follow the link; link cannot.
                file = f"/proc/self/fd/{descriptor}"
                os.link(file, unfinished / name, src_dir_fd=descriptor, follow_symlinks=True)
                os.fsync(descriptor)  # again: btrfs delays the sync of unnamed files


def _write_named(path: Path, files: Files) -> None:
    with _appear(path) as unfinished:
        for name, chunks in files.items():
            write_through(unfinished / name, chunks())


@contextmanager
def _appear(path: Path) -> Iterator[Path]:
    """A new directory that is renamed to `path` at the end, or removed on error."""
    unfinished = tempfile.mkdtemp(TEMPORARY_SUFFIX, f".{path.name}.", path.parent)  # mode 0700
    try:
        yield Path(unfinished)
        sync_directory(Path(unfinished))
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_directory(path.parent)


def _write(file: BinaryIO, chunks: Chunks) -> None:
    for chunk in chunks:
        file.write(chunk)
    file.flush()
    os.fsync(file.fileno())
