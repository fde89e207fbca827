"""A run directory used by one coordinator, and the handling of an earlier run in it.

A run that replaces an earlier one (`--overwrite`) must not lose it before the new run has saved a
model or a checkpoint. Therefore the files of the earlier run are moved, not removed:

    .previous-run.moving/   some of them, while they are moved out or back; the others are in place
    .previous-run/          all of them; the files in place are those of the newer run
    unsaved-run/            the files of the last run that ended without saving anything

:meth:`RunDirectory.finish_moves` completes an interrupted move: it moves files from the first
directory back; if the second exists, it removes the earlier run if the newer one has a model or a
checkpoint, and otherwise moves it back. Each step is a rename, so the process can be killed between
any two steps.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

from hogbatch.errors import RunDirectoryHeld, SaveError, UsageError
from hogbatch.events import marker
from hogbatch.events.names import (
    CONFIG,
    CRASH,
    EVENTS,
    FOLDER,
    MODEL,
    REPORT,
    SERVERS,
    SUMMARY,
    TENSORBOARD,
    WANDB,
)
from hogbatch.machine.files import replace_file, sync_directory
from hogbatch.machine.printable import plural
from hogbatch.run.checkpoint import folder
from hogbatch.run.checkpoint.snapshots import MAX_CHECKPOINTS
from hogbatch.store import quarantine
from hogbatch.wire import address
from hogbatch.wire.address import RunLock, make_private

PREVIOUS: Final = ".previous-run"
MOVING: Final = ".previous-run.moving"
UNSAVED: Final = "unsaved-run"

RUN_FILES: Final = (
    MODEL,
    SUMMARY,
    EVENTS,
    CONFIG,
    CRASH,
    REPORT,
    quarantine.NAME,
)  # plus logs of workers and files of trackers
DIRECTORY_FILES: Final = (
    address.NAME,
    address.SOCKET,
    FOLDER,
    PREVIOUS,
    MOVING,
    UNSAVED,
)

CONTENTS: Final = {  # folder of a run: its files in it
    TENSORBOARD: "events.out.tfevents.*",
    "updates": "*.updates",  # of runs that earlier versions recorded
}

log = logging.getLogger(__name__)


class RunDirectory:
    """The run directory `path`, which only this process writes to; created by :meth:`hold`."""

    def __init__(self, path: Path, run_lock: RunLock, descriptor: int) -> None:
        """Use :meth:`hold`; `descriptor` is an open descriptor of the directory."""
        self.path = path
        self.run_lock = run_lock
        self.checkpoints = path / FOLDER
        self._descriptor = descriptor  # kept open so that no other directory gets the same inode
        self._saving = threading.Lock()
        self._ended = False

    @classmethod
    @contextmanager
    def hold(cls, path: Path, others: Iterable[str]) -> Iterator[Self]:
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
            yield cls(path, run_lock, descriptor)

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

    def begin(self, config: str, resuming: bool) -> None:
        """Write the configuration; unless `resuming`, first move the existing run aside.

        UsageError on failure.
        """
        with _usable(self.path):
            if not resuming:
                self._move_aside()
            folder.prune(
                self.checkpoints, MAX_CHECKPOINTS
            )  # also incomplete ones of killed processes
            replace_file(self.path / CONFIG, [config.encode()])

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Context for saving a checkpoint or model; removes the earlier run afterwards.

        SaveError as from :meth:`expect_in_place`.
        """
        with self._saving:
            self.expect_in_place()
            yield
            try:
                self.finish_moves()
            except (OSError, UsageError) as error:
                log.warning("%s: cannot remove the earlier run: %s", self.path, error)

    def recover(self) -> str | None:
        """Complete the moves of a killed process; return a message for the user, if any."""
        with _usable(self.path):
            return self.finish_moves()

    def end(self) -> str | None:
        """End the run: move an earlier run back unless this run has replaced it.

        Returns a message for the user, if any. Never raises; the next start retries what fails.
        """
        if not self._saving.acquire(blocking=False):  # a second Ctrl-C during a save
            return None
        try:
            self._ended = True
            return self.finish_moves() if self._is_in_place() else None
        except (OSError, UsageError) as error:
            return f"the earlier run in {self.path} is still in {self.path / PREVIOUS}: {error}"
        finally:
            self._saving.release()

    def expect_in_place(self) -> None:
        """SaveError if `path` is no longer the directory of this run, or if the run has ended."""
        if self._ended or not self._is_in_place():
            raise SaveError(
                f"{self.path}: cannot save: the run directory was removed, moved or replaced"
            )

    def _is_in_place(self) -> bool:
        """Whether `path` is still the directory that was locked."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def finish_moves(self) -> str | None:
        """Complete interrupted moves, as described in the module; return a message, if any.

        May be repeated. Raises OSError or UsageError.
        """
        moving, previous = self.path / MOVING, self.path / PREVIOUS
        if previous.is_dir() and not moving.is_dir():
            if any(_saved(self.path)):
                _remove(previous, self._files_of_run(previous))
                return None
            self._keep_unsaved()
            os.rename(previous, moving)
        if not moving.is_dir():
            return None
        _move(self._files_of_run(moving), moving, self.path)
        _remove_empty(moving)
        sync_directory(self.path)
        unsaved = self.path / UNSAVED
        return f"the earlier run in {self.path} was restored" + (
            f"; the files of the run that saved nothing are in {unsaved}"
            if unsaved.is_dir()
            else ""
        )

    def _move_aside(self) -> None:
        """Move the files of the existing run aside, so that a new run can begin."""
        moving, previous, unsaved = (self.path / name for name in (MOVING, PREVIOUS, UNSAVED))
        for left in (moving, previous):
            if os.path.lexists(left):
                raise UsageError(
                    f"{left} contains files that do not belong to a run; move them, or choose "
                    "another --run-dir"
                )
        _remove(unsaved, self._files_of_run(unsaved))
        if not any(_saved(self.path)):
            self._keep_unsaved()
            return
        moving.mkdir(0o700)
        _move(self._files_of_run(self.path), self.path, moving)
        os.rename(moving, previous)
        sync_directory(self.path)

    def _keep_unsaved(self) -> None:
        """Move the files of a run that has saved nothing to UNSAVED."""
        _move(self._files_of_run(self.path), self.path, self.path / UNSAVED)

    def _files_of_run(self, base: Path) -> list[str]:
        """The files of a run in `base`, relative to it; a checkpoint counts as one file."""
        names = sorted((marker.listed(self.path) or frozenset()) - {*DIRECTORY_FILES})
        own = [name for name in names if os.path.lexists(base / name)]
        return own + [f"{FOLDER}/{path.name}" for path in folder.paths(base / FOLDER)]


def located(run_dir: Path, name: str) -> Path:
    """The path of file or folder `name` of the run in `run_dir`, even after interrupted moves."""
    with suppress(OSError):
        moving, previous = run_dir / MOVING / name, run_dir / PREVIOUS / name
        if moving.exists():
            return moving
        if previous.exists() and not any(_saved(run_dir)):
            return previous
    return run_dir / name


def _saved(run_dir: Path) -> tuple[bool, int]:
    """Whether `run_dir` has a model, and its number of checkpoints. OSError."""
    return (run_dir / MODEL).is_file(), len(folder.paths(run_dir / FOLDER))


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    """Move the files `names` from `source` to `target`; UsageError if one exists there."""
    for name in names:
        (target / name).parent.mkdir(0o700, parents=True, exist_ok=True)
        if os.path.lexists(target / name):
            raise UsageError(
                f"{source / name} belongs at {target / name}, which exists; move one of them away"
            )
        os.rename(source / name, target / name)


def _remove(base: Path, names: Iterable[str]) -> None:
    """Remove the files `names` of the run in `base`, then `base` if it is empty."""
    for name in names:
        if Path(name).parent.name == FOLDER:
            folder.remove(base / name)
        elif name in CONTENTS:
            _remove_contents(base / name, CONTENTS[name])
        elif name in (WANDB, SERVERS):
            shutil.rmtree(base / name, ignore_errors=True)  # a tree of its own, with links
        else:
            (base / name).unlink(missing_ok=True)
    folder.prune(base / FOLDER, 0)  # also partly removed ones of killed processes
    _remove_empty(base)


def _remove_contents(directory: Path, pattern: str) -> None:
    """Remove the files of a run from a folder of it; other files there are kept."""
    for path in directory.glob(pattern):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # missing or not empty
        directory.rmdir()


def _remove_empty(base: Path) -> None:
    for path in (base / FOLDER, base):
        with suppress(OSError):  # missing or not empty
            path.rmdir()


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
