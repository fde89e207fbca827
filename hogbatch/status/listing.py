"""The runs in a directory."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hogbatch.checkpoint import marker
from hogbatch.errors import HogbatchError, UsageError
from hogbatch.status.run_files import RunReport, glance, is_run, read_settings
from hogbatch.status.settings import differing

YEAR_2000: Final = 946684800.0  # Unix seconds; earlier times are those of a simulated clock


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run directory."""

    path: Path
    at: float  # when the run started, or its directory was created, in Unix seconds
    report: RunReport | None  # None: it cannot be read
    problem: str = ""  # why it cannot be read
    settings: Mapping[str, Any] = field(default_factory=dict)
    differing: tuple[str, ...] = ()  # the settings in which the listed runs differ

    @property
    def test_loss(self) -> float | None:
        """The test loss of the best model."""
        best = self.report.run.best if self.report else None
        return best.test_loss if best else None

    @property
    def metric(self) -> tuple[str, float] | None:
        """The first metric of the best model."""
        best = self.report.run.best if self.report else None
        return next(iter(best.test_values.items()), None) if best else None

    @property
    def workers(self) -> str:
        """The workers that have not left, or all of them if none is there: "cpu:4, 2 gpu"."""
        run = self.report.run if self.report else None
        if run is None:
            return ""
        kinds = (_kind(worker.device) for worker in run.present or run.workers)
        return ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in Counter(kinds).items())


ORDERS: Final[Mapping[str, Callable[[ListedRun], float]]] = {
    "newest": lambda run: -run.at,
    "loss": lambda run: math.inf if run.test_loss is None else run.test_loss,
    "time": lambda run: run.report.run.seconds if run.report else math.inf,
}


def listed_runs(directory: Path, order: str, limit: int | None) -> list[ListedRun]:
    """The runs whose directories are in `directory`, in this order. UsageError for other paths."""
    found = sorted(map(_listed, _run_dirs(directory)), key=ORDERS["newest"])
    found = sorted(found, key=ORDERS[order])[:limit]
    readable = [run for run in found if run.report is not None]
    keys = tuple(differing([run.settings for run in readable]))
    return [
        ListedRun(run.path, run.at, run.report, run.problem, run.settings, keys) for run in found
    ]


def read_limit(text: str | None) -> int | None:
    """The value of --limit; UsageError if it is not a positive whole number."""
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise UsageError(f"limit: expected a whole number of 1 or more; got {text!r}")
    return int(text)


def _run_dirs(directory: Path) -> list[Path]:
    expected = "expected a directory with run directories"
    try:
        if is_run(directory):
            raise UsageError(
                f"{directory} is a run directory; {expected}; hogbatch status {directory} shows it"
            )
        if not directory.exists():
            raise UsageError(f"{directory} does not exist; {expected}: hogbatch runs DIR")
        if not directory.is_dir():
            raise UsageError(f"{directory} is a file; {expected}; give the directory above it")
        return [path for path in directory.iterdir() if path.is_dir() and _may_be_run(path)]
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror}; {expected}") from None


def _may_be_run(path: Path) -> bool:
    try:
        return is_run(path)
    except OSError:  # it cannot be entered, as the run directories of other users
        return True


def _listed(path: Path) -> ListedRun:
    """A run directory, damaged or not."""
    at = 0.0
    try:
        at = (path / marker.NAME).stat().st_mtime
        marker.listed(path)
        report = glance(path)
        started = report.run.first_at
        if started is not None and started >= YEAR_2000:
            at = started
        return ListedRun(path, at, report, settings=read_settings(path))
    except HogbatchError as error:
        return ListedRun(path, at, None, str(error).replace(f"{path}/", ""))
    except OSError as error:
        return ListedRun(path, at, None, f"cannot be read: {error.strerror}")


def _kind(device: str) -> str:
    return device if device.startswith("cpu") else device.partition(":")[0]
