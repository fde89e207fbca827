"""A run directory in the hands of one coordinator, and what becomes of an earlier run in it.

A run that replaces another one (`--overwrite`) must not lose it before it has saved something
itself. So the files of the earlier run are moved, not removed:

    .previous-run.moving/   some of them, while they are moved out or back; the others are in place
    .previous-run/          all of them; the files in place are those of the newer run
    unsaved-run/            the files of the last run that ended without having saved anything

:meth:`RunDirectory.settle` finishes what these names say is unfinished: it moves files out of the
first back, and with the second it either removes the earlier run, if the newer one has a model or a
checkpoint, or moves it back. Each step is a rename, so a process can be killed between any two.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

from hogbatch.checkpoint import folder, marker
from hogbatch.checkpoint.files import replace_file, sync_directory
from hogbatch.checkpoint.snapshots import KEPT
from hogbatch.errors import RunDirectoryHeld, SaveError, UsageError
from hogbatch.store import handover, quarantine
from hogbatch.wire import address
from hogbatch.wire.address import RunLock, make_private

FOLDER: Final = "checkpoints"
MODEL: Final = "model.safetensors"
SUMMARY: Final = "summary.json"
EVENTS: Final = "events.jsonl"
CONFIG: Final = "config.toml"
CRASH: Final = "crash.txt"
PREVIOUS: Final = ".previous-run"
MOVING: Final = ".previous-run.moving"
UNSAVED: Final = "unsaved-run"

MOVED: Final = (MODEL, SUMMARY, EVENTS, CONFIG, CRASH, quarantine.NAME)  # and the workers' logs
STAYS: Final = (
    *(address.NAME, address.SOCKET, handover.NAME),
    *(FOLDER, PREVIOUS, MOVING, UNSAVED),
)

log = logging.getLogger(__name__)


class RunDirectory:
    """The run directory `path`, which only this process writes to; made by :meth:`hold`."""

    def __init__(self, path: Path, run_lock: RunLock, descriptor: int) -> None:
        """Use :meth:`hold`; `descriptor` is one of the directory, open for as long as this."""
        self.path = path
        self.run_lock = run_lock
        self.checkpoints = path / FOLDER
        self._descriptor = descriptor  # open, so that no other directory gets the same inode
        self._saving = threading.Lock()
        self._ended = False

    @classmethod
    @contextmanager
    def hold(cls, path: Path, logs: Iterable[str]) -> Iterator[Self]:
        """Hold `path`, made with mode 0700 if it is missing, for a run with these worker `logs`.

        If the body fails before it has written anything, all that was made here is removed.
        UsageError if the directory cannot be used, or if it has a file of another origin that the
        run would overwrite; RunDirectoryHeld if another process holds it.
        """
        names = (*MOVED, *STAYS, *logs)
        with ExitStack() as undo:
            with _usable(path):
                if not path.exists():
                    undo.push(partial(_after_error, path.rmdir))
                make_private(path)
                if marker.claim(path, names, address.NAME):
                    undo.push(partial(_after_error, lambda: _unmake(path, names)))
            undo.callback((run_lock := RunLock.take(path)).close)
            with _usable(path):
                marker.extend(path, names)
                descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, descriptor)
            yield cls(path, run_lock, descriptor)

    def expect_no_run(self) -> None:
        """UsageError if there is a model or a checkpoint, which a new run would replace."""
        with _usable(self.path):
            model, count = _saved(self.path)
        if not (model or count):
            return
        resume = "--resume to go on with it, " if count else ""
        found = [MODEL] * model + [f"{count} checkpoint{'s'[: count > 1]}"] * (count > 0)
        raise UsageError(
            f"{self.path} holds a run ({' and '.join(found)}): give {resume}--overwrite to replace "
            "it, or another --run-dir"
        )

    def begin(self, config: str, goes_on: bool) -> None:
        """Write the configuration; unless the run in place `goes_on`, move it aside first.

        UsageError if that fails.
        """
        with _usable(self.path):
            if not goes_on:
                self._set_aside()
            folder.prune(self.checkpoints, KEPT)  # also what a killed writer has left
            replace_file(self.path / CONFIG, [config.encode()])

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Surrounds the saving of a checkpoint or model: the earlier run is removed afterwards.

        SaveError as from :meth:`expect_in_place`.
        """
        with self._saving:
            self.expect_in_place()
            yield
            try:
                self.settle()
            except (OSError, UsageError) as error:
                log.warning("%s: the earlier run was not removed: %s", self.path, error)

    def recover(self) -> str:
        """Finish what a killed process has left unfinished; returns what was done, for people."""
        with _usable(self.path):
            return self.settle()

    def end(self) -> str:
        """Call when the run ends: an earlier run that it has not replaced is moved back.

        Returns what was done, for people. Never raises; what fails is done by the next start.
        """
        if not self._saving.acquire(blocking=False):  # a second Ctrl-C while a save is at work
            return ""
        try:
            self._ended = True
            return self.settle() if self._is_in_place() else ""
        except (OSError, UsageError) as error:
            return f"the earlier run in {self.path} is still in {self.path / PREVIOUS}: {error}"
        finally:
            self._saving.release()

    def expect_in_place(self) -> None:
        """SaveError if `path` is no longer the directory that the run began in, or has ended."""
        if self._ended or not self._is_in_place():
            raise SaveError(
                f"{self.path}: cannot save anything there: the run directory was removed, moved or "
                "replaced"
            )

    def _is_in_place(self) -> bool:
        """Whether `path` is still the directory that was taken."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def settle(self) -> str:
        """See the module; may be repeated. Returns what was done. OSError, UsageError."""
        moving, previous = self.path / MOVING, self.path / PREVIOUS
        if previous.is_dir() and not moving.is_dir():
            if any(_saved(self.path)):
                _remove(previous, self._own(previous))
                return ""
            self._keep_unsaved()
            os.rename(previous, moving)
        if not moving.is_dir():
            return ""
        _move(self._own(moving), moving, self.path)
        _remove_empty(moving)
        sync_directory(self.path)
        unsaved = self.path / UNSAVED
        return f"the earlier run in {self.path} is back in place" + (
            f"; files of the run that saved nothing are in {unsaved}" if unsaved.is_dir() else ""
        )

    def _set_aside(self) -> None:
        """Move the files of the run in place, so that a new one can begin."""
        moving, previous, unsaved = (self.path / name for name in (MOVING, PREVIOUS, UNSAVED))
        for left in (moving, previous):
            if os.path.lexists(left):
                raise UsageError(
                    f"{left} holds files that are not of a run; move them, or choose another "
                    "--run-dir"
                )
        _remove(unsaved, self._own(unsaved))
        if not any(_saved(self.path)):
            self._keep_unsaved()
            return
        moving.mkdir(0o700)
        _move(self._own(self.path), self.path, moving)
        os.rename(moving, previous)
        sync_directory(self.path)

    def _keep_unsaved(self) -> None:
        """Move the files in place, of a run that has saved nothing, to UNSAVED."""
        _move(self._own(self.path), self.path, self.path / UNSAVED)

    def _own(self, base: Path) -> list[str]:
        """The files of a run in `base`, relative to it; a checkpoint counts as one."""
        names = sorted((marker.listed(self.path) or frozenset()) - {*STAYS})
        own = [name for name in names if os.path.lexists(base / name)]
        return own + [f"{FOLDER}/{path.name}" for path in folder.paths(base / FOLDER)]


def located(run_dir: Path, name: str) -> Path:
    """Where the file or folder `name` of the run in `run_dir` is, whatever is unfinished there."""
    with suppress(OSError):
        moving, previous = run_dir / MOVING / name, run_dir / PREVIOUS / name
        if moving.exists():
            return moving
        if previous.exists() and not any(_saved(run_dir)):
            return previous
    return run_dir / name


def _saved(run_dir: Path) -> tuple[bool, int]:
    """Whether `run_dir` has a model, and the number of its checkpoints. OSError."""
    return (run_dir / MODEL).is_file(), len(folder.paths(run_dir / FOLDER))


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    """Rename the files `names` of `source`; UsageError if `target` has one of that name."""
    for name in names:
        (target / name).parent.mkdir(0o700, parents=True, exist_ok=True)
        if os.path.lexists(target / name):
            raise UsageError(
                f"{source / name} belongs to {target / name}, which exists; move one of them away"
            )
        os.rename(source / name, target / name)


def _remove(base: Path, names: Iterable[str]) -> None:
    """Remove the files `names` of the run in `base`, then `base` if nothing else is in it."""
    for name in names:
        if Path(name).parent.name == FOLDER:
            folder.remove(base / name)
        else:
            (base / name).unlink(missing_ok=True)
    folder.prune(base / FOLDER, 0)  # also what a killed process has begun to remove
    _remove_empty(base)


def _remove_empty(base: Path) -> None:
    for path in (base / FOLDER, base):
        with suppress(OSError):  # missing, or something else is in it
            path.rmdir()


def _after_error(undo: Callable[[], None], kind: type[BaseException] | None, *_: object) -> None:
    """Call `undo` if an exception of type `kind` ended the body, and others do not use the files.

    Its own failure does not matter: a directory, say, that is not empty.
    """
    if kind is not None and not issubclass(kind, RunDirectoryHeld):
        with suppress(OSError):
            undo()


def _unmake(path: Path, names: Iterable[str]) -> None:
    """Remove the marker and the address if the run has written nothing else. OSError."""
    if not any(os.path.lexists(path / name) for name in names if name != address.NAME):
        (path / marker.NAME).unlink()  # first: what it does not list is not ours to remove
        (path / address.NAME).unlink(missing_ok=True)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Turn an OSError into the UsageError that `path` cannot be a run directory."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot use {path} as run directory: {error.strerror}; choose another --run-dir"
        ) from None
