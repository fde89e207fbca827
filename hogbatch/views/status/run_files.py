"""Reads a run directory, and never writes to it or connects to the run."""

import json
import os
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from hogbatch.errors import DataError, UsageError
from hogbatch.events import marker
from hogbatch.events.event import Ended
from hogbatch.events.event_log import last_state, read_on
from hogbatch.events.names import CONFIG, CRASH, ELSEWHERE, EVENTS, SUMMARY
from hogbatch.events.state import Condition, RunState, condition_of
from hogbatch.machine.process import ProcessIdentity


class RunReport(NamedTuple):
    """A run at one moment."""

    run_dir: Path
    run: RunState
    condition: Condition
    elsewhere: Path | None = None  # the directory with results that could not be saved in this one


def is_run(path: Path) -> bool:
    """The path is a run directory. OSError."""
    return (path / marker.NAME).is_file()


def expect_run(path: Path) -> None:
    """UsageError if `path` is not a run directory."""
    expected = "expected a run directory, which hogbatch train creates"
    try:
        if is_run(path):
            return
        if not path.is_dir():
            found = "is a file" if path.exists() else "does not exist"
            raise UsageError(f"{path} {found}; {expected}; hogbatch runs lists them")
        has_runs = any(is_run(each) for each in path.iterdir() if each.is_dir())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; {expected}") from None
    advice = "give another directory"
    if has_runs:
        advice = f"hogbatch runs {quote(str(path))} lists the runs in it"
    raise UsageError(f"{path} is not a run directory (it has no {marker.NAME}); {advice}")


class RunFollower:
    """The run in a directory, which may be in progress."""

    def __init__(self, run_dir: Path) -> None:
        self._dir = run_dir
        self._path = run_dir / EVENTS
        self._run = RunState()
        self._first = b""  # line of the file, by which it is recognised
        self._position = 0

    def look(self) -> RunReport:
        """The run as it is now. DataError if a file is damaged or cannot be read."""
        self._read()
        running = self._is_running()
        elsewhere = self._elsewhere()
        if running is False:  # what it has written since the last read is complete now
            self._read()
            if self._run.ended is None and elsewhere is not None:  # it could not log its end
                with suppress(DataError):
                    if summary := read_summary(elsewhere):
                        self._run.ended = Ended(summary["status"], summary["reason"])
        condition = condition_of(self._run, running, self._crash())
        return RunReport(self._dir, self._run, condition, elsewhere)

    def _read(self) -> None:
        """Apply the events written since the last call; begin again if the file was replaced.

        An incomplete last line is read when it is complete. A coordinator that resumes the run
        removes it.
        """
        try:
            with self._path.open("rb") as file:
                first = file.readline()
                if not first.endswith(b"\n"):
                    return
                if first != self._first or file.seek(0, os.SEEK_END) < self._position:
                    self._first = first
                    self._run, self._position = last_state(file)
                self._position = read_on(file, self._run, self._position)
        except FileNotFoundError:  # it does not exist yet, or is being replaced
            return
        except OSError as error:
            raise DataError(f"{self._path}: cannot read the events: {error.strerror}") from None

    def _elsewhere(self) -> Path | None:
        """Where the results are that could not be saved in the directory, if there are any."""
        with suppress(OSError):
            return Path(os.readlink(self._dir / ELSEWHERE))
        return None

    def _is_running(self) -> bool | None:
        """Look for the coordinator; None if it cannot be seen from here."""
        started = self._run.started
        identity = started and ProcessIdentity.of(started.process)
        return identity.is_running() if identity else None

    def _crash(self) -> str | None:
        """The crash report of the last life of the coordinator, if there is one."""
        path, started = self._dir / CRASH, self._run.started
        with suppress(OSError):
            return str(path) if started and path.stat().st_mtime >= started.at else None
        return None


def read_summary(run_dir: Path) -> dict[str, Any] | None:
    """The content of summary.json; None if there is none. DataError if it is damaged."""
    summary = _content(run_dir / SUMMARY, json.loads)
    if summary is None or {"status", "reason", "rows"} <= summary.keys():
        return summary
    raise DataError(f"{run_dir / SUMMARY}: this is not the summary of a run")


def read_settings(run_dir: Path) -> dict[str, Any]:
    """The settings of config.toml; none if the run has not written it. DataError if damaged."""
    return _content(run_dir / CONFIG, tomllib.loads) or {}


def _content(path: Path, parse_text: Callable[[str], object]) -> dict[str, Any] | None:
    """The content of a file; None if it does not exist. DataError if it is damaged."""
    try:
        content = parse_text(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}: the file is damaged: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: the file is damaged: expected an object")
    return content
