"""Reads a run directory, and never writes to it or connects to the run."""

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hogbatch.checkpoint import marker
from hogbatch.checkpoint.names import CONFIG, CRASH, EVENTS, SUMMARY
from hogbatch.errors import DataError, UsageError
from hogbatch.machine.process import ProcessIdentity
from hogbatch.status.condition import Condition, condition_of
from hogbatch.status.events import EventReader, first_event, last_event
from hogbatch.status.state import Ended, RunState


class RunReport(NamedTuple):
    """A run at one moment."""

    run_dir: Path
    run: RunState
    condition: Condition
    damaged: int  # lines of events.jsonl that are not events


def is_run(path: Path) -> bool:
    """Whether `path` is a run directory. OSError."""
    return (path / marker.NAME).is_file()


def expect_run(path: Path) -> None:
    """UsageError if `path` is not a run directory."""
    expected = "expected a run directory, which hogbatch train creates"
    try:
        if is_run(path):
            return
        if not path.exists():
            raise UsageError(f"{path} does not exist; {expected}; hogbatch runs lists them")
        if not path.is_dir():
            raise UsageError(f"{path} is a file; {expected}; give the directory that contains it")
        has_runs = any(is_run(each) for each in path.iterdir() if each.is_dir())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; {expected}") from None
    advice = f"hogbatch runs {path} lists the runs in it" if has_runs else "give another directory"
    raise UsageError(f"{path} is not a run directory (it has no {marker.NAME}); {advice}")


class RunFollower:
    """The run in a directory, which may be in progress."""

    def __init__(self, run_dir: Path) -> None:
        self._dir = run_dir
        self._reader = EventReader(run_dir / EVENTS)
        self._run = RunState()

    def look(self) -> RunReport:
        """The run as it is now. DataError if a file is damaged or cannot be read."""
        self._read()
        running = self._is_running()
        if running is False:  # what it has written since the last read is complete now
            self._read()
        run = self._run
        if run.ended is None and run.started is None:
            run = self._with_summary()
        crash = self._crash() if running is False else ""
        damaged = self._reader.damaged + run.damaged
        return RunReport(self._dir, run, condition_of(run, running, crash), damaged)

    def _read(self) -> None:
        if self._reader.was_replaced():
            self._run = RunState()
        for event in self._reader.read():
            self._run.apply(event)

    def _is_running(self) -> bool | None:
        """Whether the coordinator runs; None if that is not known."""
        started = self._run.started
        identity = started and ProcessIdentity.of(started.process)
        return identity.is_running() if identity else None

    def _with_summary(self) -> RunState:
        """The run of a version that did not record its start and end, as its summary has it."""
        summary = read_summary(self._dir)
        if summary is None:
            return self._run
        if self._run.first_at is None:
            return summarised(self._dir, summary)
        self._run.ended = Ended(str(summary["status"]), str(summary["reason"]))
        return self._run

    def _crash(self) -> str:
        """The crash report of the last life of the coordinator; empty if there is none."""
        path, started = self._dir / CRASH, self._run.started
        try:
            return str(path) if started and path.stat().st_mtime >= started.at else ""
        except OSError:
            return ""


def read_summary(run_dir: Path) -> dict[str, Any] | None:
    """The content of summary.json; None if there is none. DataError if it is damaged."""
    path = run_dir / SUMMARY
    try:
        summary = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot read the summary: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}: the summary is damaged: {error}") from None
    if not isinstance(summary, dict) or not {"status", "reason", "rows"} <= summary.keys():
        raise DataError(f"{path}: this is not the summary of a run")
    return summary


def summarised(run_dir: Path, summary: dict[str, Any]) -> RunState:
    """The run that a summary describes; DataError if it is damaged."""
    try:
        return RunState.summarised(summary)
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise DataError(f"{run_dir / SUMMARY}: the summary is damaged: {error!r}") from None


def read_settings(run_dir: Path) -> dict[str, Any]:
    """The settings of config.toml; none if the run has not written it. DataError if damaged."""
    path = run_dir / CONFIG
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(f"{path}: cannot read the settings: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}: the settings are damaged: {error}") from None


def glance(run_dir: Path) -> RunReport:
    """The run as it is now, from its summary if it has ended: its events may be many.

    A summary is not that of a run which was resumed since, so the last event must agree with it.
    Errors as from :meth:`RunFollower.look`.
    """
    try:
        first, last = first_event(run_dir / EVENTS), last_event(run_dir / EVENTS)
    except OSError:
        first = last = None
    if first is None or last is None or last["event"] != "ended":
        return RunFollower(run_dir).look()
    summary = read_summary(run_dir)
    if summary is None or any(summary[key] != last.get(key) for key in ("status", "rows")):
        return RunFollower(run_dir).look()
    run = summarised(run_dir, summary)
    run.first_at, run.last_at = first["at"], last["at"]
    return RunReport(run_dir, run, condition_of(run, None, ""), 0)
