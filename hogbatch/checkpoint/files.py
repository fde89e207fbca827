"""Files and directories that are on the disk when a call returns, whole or not at all."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

Chunks = Iterable[bytes | memoryview]  # what a file holds, piece after piece
Files = Mapping[str, Callable[[], Chunks]]  # by name; asked for in this order, maybe a second time

UNFINISHED: Final = ".tmp"  # end of the name of a file or directory that is being written
# How a file system without unnamed files says so, or a system without /proc to name them by.
NO_UNNAMED_FILES: Final = (
    *(errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EPERM, errno.EXDEV),
)


def write_through(path: Path, chunks: Chunks) -> None:
    """Write a file and wait until the disk has it, but not its name; OSError when that fails."""
    with path.open("wb") as file:
        _write(file, chunks)


def replace_file(path: Path, chunks: Chunks) -> None:
    """Write the file `path`, or leave the earlier one as it was; OSError when that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        write_through(temporary, chunks)
        os.replace(temporary, path)
        sync_directory(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Wait until the disk has the names in a directory; OSError when that fails."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_directory(path: Path, files: Files) -> None:
    """Make the directory `path` with `files`, by name, for this user alone (0700).

    It appears under its name when all of it is on the disk. A process that is killed before leaves
    nothing, or beside `path` a directory whose name begins with "." and ends in UNFINISHED. OSError
    when that fails; nothing is left then, but for all of it where only the last sync failed.
    """
    try:
        _write_unnamed(path, files)
    except OSError as error:
        if error.errno not in NO_UNNAMED_FILES:
            raise
        _write_named(path, files)


def _write_unnamed(path: Path, files: Files) -> None:
    """Write files that the kernel frees with the process, and name them only at the end."""
    with ExitStack() as until_named:
        descriptors = {}
        for name, chunks in files.items():
            descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o600)
            _write(until_named.enter_context(open(descriptor, "wb")), chunks())
            descriptors[name] = descriptor
        with _appear(path) as unfinished:
            for name, descriptor in descriptors.items():
                # With src_dir_fd Python calls linkat, which can follow the link; link does not.
                file = f"/proc/self/fd/{descriptor}"
                os.link(file, unfinished / name, src_dir_fd=descriptor, follow_symlinks=True)
                os.fsync(descriptor)  # again: btrfs puts off what has no name


def _write_named(path: Path, files: Files) -> None:
    with _appear(path) as unfinished:
        for name, chunks in files.items():
            write_through(unfinished / name, chunks())


@contextmanager
def _appear(path: Path) -> Iterator[Path]:
    """A new directory that is named `path` at the end, or removed."""
    unfinished = tempfile.mkdtemp(UNFINISHED, f".{path.name}.", path.parent)  # mode 0700
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
