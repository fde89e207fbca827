"""A run directory used by one coordinator, and what becomes of an earlier run in it.

A run that replaces another one (`--overwrite`) moves its files to `previous-run/` and leaves them
there, so that a mistake does not lose a model. The next run that is replaced takes this place once
all of its files are in `previous-run.tmp/`; if the move is interrupted, the next run continues it.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

from hogbatch.errors import RunDirectoryHeld, SaveError, UsageError
from hogbatch.events import marker
from hogbatch.events.names import (
    CONFIG,
    CRASH,
    ELSEWHERE,
    EVENTS,
    FOLDER,
    MODEL,
    REPORT,
    SUMMARY,
)
from hogbatch.machine.files import TEMPORARY_SUFFIX, remove, replace_file
from hogbatch.machine.printable import plural
from hogbatch.machine.temporary import TemporaryDirectory
from hogbatch.run.checkpoint import folder
from hogbatch.run.checkpoint.snapshots import MAX_CHECKPOINTS
from hogbatch.store import quarantine
from hogbatch.wire import address
from hogbatch.wire.address import RunLock, make_private

PREVIOUS: Final = "previous-run"
MOVING: Final = f"{PREVIOUS}{TEMPORARY_SUFFIX}"

RUN_FILES: Final = (
    MODEL,
    SUMMARY,
    EVENTS,
    CONFIG,
    CRASH,
    REPORT,
    ELSEWHERE,
    quarantine.NAME,
)  # plus logs of workers and files of trackers
DIRECTORY_FILES: Final = (address.NAME, address.SOCKET, FOLDER, PREVIOUS, MOVING)


class RunDirectory:
    """The run directory `path`, which only this process writes to; created by :meth:`hold`."""

    def __init__(self, path: Path, run_lock: RunLock, descriptor: int, temporary: bool) -> None:
        """Use :meth:`hold`; `descriptor` is an open descriptor of the directory."""
        self.path = path
        self.temporary = temporary  # removed at the end, see `temporary_directory`
        self.run_lock = run_lock
        self.checkpoints = path / FOLDER
        self._descriptor = descriptor  # kept open so that no other directory gets the same inode

    @classmethod
    @contextmanager
    def hold(cls, path: Path, others: Iterable[str], *, temporary: bool = False) -> Iterator[Self]:
        """Lock `path`, creating it with mode 0700 if missing, for a run.

        `others` are the files that not every run has: logs of workers, files of trackers.

        If the body fails before it has written anything, everything created here is removed.
        UsageError if the directory cannot be used, or if the run would overwrite a file that does
        not belong to a run; RunDirectoryHeld if another process holds the lock.
        """
        names = (*RUN_FILES, *DIRECTORY_FILES, *others)
        with ExitStack() as undo:
            with _usable(path):
                if not path.exists():
                    undo.push(partial(_after_error, path.rmdir))
                make_private(path)
                if marker.claim(path, names, address.NAME):
                    undo.push(partial(_after_error, lambda: _remove_marker(path, names)))
            undo.callback((run_lock := RunLock.take(path)).close)
            with _usable(path):
                marker.extend(path, names)
                descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, descriptor)
            yield cls(path, run_lock, descriptor, temporary)

    def expect_no_run(self) -> None:
        """UsageError if the directory has a model or a checkpoint that a new run would replace."""
        with _usable(self.path):
            model, count = _saved(self.path)
        if not (model or count):
            return
        resume = "--resume to continue it, " if count else ""
        found = [MODEL] if model else []
        if count:
            found.append(plural(count, "checkpoint"))
        raise UsageError(
            f"{self.path} contains a run ({' and '.join(found)}): give {resume}--overwrite to "
            "replace it, or another --run-dir"
        )

    def begin(self, config: str, resuming: bool) -> bool:
        """Write the configuration; unless `resuming`, first make room for a new run.

        Return whether an earlier run was moved to PREVIOUS. UsageError on failure.
        """
        with _usable(self.path):
            moved = not resuming and self._make_room()
            (self.path / ELSEWHERE).unlink(missing_ok=True)
            # Also removes incomplete checkpoints of killed processes.
            folder.prune(self.checkpoints, MAX_CHECKPOINTS)
            replace_file(self.path / CONFIG, [config.encode()])
        return moved

    def expect_in_place(self) -> None:
        """SaveError if `path` is no longer the directory that was locked."""
        with suppress(OSError):
            if os.path.samestat(self.path.stat(), os.fstat(self._descriptor)):
                return
        raise SaveError(
            f"{self.path}: cannot save: the run directory was removed, moved or replaced"
        )

    def point_to(self, folder: Path) -> None:
        """Leave a link to `folder`, which has results that could not be saved here.

        A link needs no space on a full disk. It is in the directory that was locked, also if that
        was moved; there is none if it cannot be created.
        """
        with suppress(OSError):
            os.symlink(folder.absolute(), ELSEWHERE, dir_fd=self._descriptor)

    def _make_room(self) -> bool:
        """Move an earlier run to PREVIOUS and return True, or remove it if it has saved nothing."""
        moving, previous = self.path / MOVING, self.path / PREVIOUS
        if not (any(_saved(self.path)) or moving.is_dir()):
            for file in self._files_of_run():
                remove(file)
            return False
        for file in self._files_of_run():
            target = moving / file.relative_to(self.path)
            target.parent.mkdir(0o700, parents=True, exist_ok=True)
            os.rename(file, target)
        if os.path.lexists(previous):
            remove(previous)
        os.rename(moving, previous)
        return True

    def _files_of_run(self) -> list[Path]:
        """The files of the run; a checkpoint counts as one file.

        The last ones are the checkpoints, oldest first, the settings and the model: what is moved
        last is found if the move is interrupted.
        """
        listed = marker.listed(self.path) or frozenset()
        names = sorted(listed - {CONFIG, MODEL, *DIRECTORY_FILES})
        files = [self.path / name for name in names]
        files += [*reversed(folder.paths(self.checkpoints)), self.path / CONFIG, self.path / MODEL]
        return [file for file in files if os.path.lexists(file)]


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A private directory of a run whose files are not kept; it stays if an error names it."""
    try:
        directory = TemporaryDirectory()
    except OSError as error:
        problem = f"no temporary directory can be created ({error.strerror})"
        raise UsageError(f"{problem}; give a run directory (run_dir)") from None
    with closing(directory):
        try:
            yield directory.path
        except BaseException as error:
            if str(directory.path) in f"{error} {getattr(error, '__notes__', '')}":
                directory.keep()
            raise


def _saved(run_dir: Path) -> tuple[bool, int]:
    """Whether `run_dir` has a model, and its number of checkpoints. OSError."""
    return (run_dir / MODEL).is_file(), len(folder.paths(run_dir / FOLDER))


def _after_error(undo: Callable[[], None], kind: type[BaseException] | None, *_: object) -> None:
    """Call `undo` if an exception of type `kind` ended the body, unless the directory is locked.

    Failures of `undo` are ignored, for example a directory that is not empty.
    """
    if kind is not None and not issubclass(kind, RunDirectoryHeld):
        with suppress(OSError):
            undo()


def _remove_marker(path: Path, names: Iterable[str]) -> None:
    """Remove the marker and the address if the run has written no other file. OSError."""
    if not any(os.path.lexists(path / name) for name in names if name != address.NAME):
        (path / marker.NAME).unlink()  # first: only files listed in a marker may be removed
        (path / address.NAME).unlink(missing_ok=True)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Convert an OSError to a UsageError: `path` cannot be used as a run directory."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot use {path} as run directory: {error.strerror}; choose another --run-dir"
        ) from None
