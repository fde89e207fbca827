"""The runs in a directory, with their results and the settings in which they differ."""

import math
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hogbatch.errors import HogbatchError, UsageError
from hogbatch.events import marker
from hogbatch.machine.printable import printable
from hogbatch.views.console import figure
from hogbatch.views.status.run_files import RunFollower, RunReport, is_run, read_settings
from hogbatch.views.status.text import aligned, filled, shown

YEAR_2000: Final = 946684800.0  # Unix seconds; earlier times are those of a simulated clock
# These settings do not change a run.
NOT_COMPARED: Final = ("log", "events", "quiet", "plain", "overwrite", "run-dir", "resume")
HEADER: Final = ("run", "state", "metric", "validation", "seconds", "rows/s")
INDENT: Final = "    "

Settings = Mapping[str, Any]  # the content of config.toml
ListedRun = dict[str, Any]  # as in the output of --json

ORDERS: Final[Mapping[str, Callable[[ListedRun], float]]] = {
    "newest": lambda run: -run["at"],
    "loss": lambda run: math.inf if run.get("validation_loss") is None else run["validation_loss"],
    "time": lambda run: run.get("seconds", math.inf),
}


def listed_runs(directory: Path, order: str, limit: int | None) -> list[ListedRun]:
    """The runs whose directories are in `directory`, in this order. UsageError for other paths."""
    listed = sorted(map(_listed, _run_dirs(directory)), key=ORDERS["newest"])
    listed = sorted(listed, key=ORDERS[order])[:limit]
    readable = [run for run in listed if not run["problem"]]
    keys = differing([run["settings"] for run in readable])
    for run in readable:
        run["settings"] = {key: run["settings"].get(key) for key in keys}
    return listed


def differing(runs: Sequence[Settings]) -> list[str]:
    """The keys that do not have the same value in all runs, in the order of the settings.

    A missing key has the value None, which is a default that depends on the data or the machine.
    """
    keys = dict.fromkeys(key for settings in runs for key in settings if key not in NOT_COMPARED)
    return [key for key in keys if any(run.get(key) != runs[0].get(key) for run in runs)]


def _run_dirs(directory: Path) -> list[Path]:
    expected = "expected a directory with run directories"
    try:
        if is_run(directory):
            raise UsageError(
                f"{directory} is a run directory; {expected}; "
                f"hogbatch status {shlex.quote(str(directory))} shows it"
            )
        if not directory.is_dir():
            found = "is a file" if directory.exists() else "does not exist"
            raise UsageError(f"{directory} {found}; {expected}: hogbatch runs DIR")
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
    run: ListedRun = {"run_dir": str(path), "at": 0.0, "problem": ""}
    try:
        run["at"] = (path / marker.NAME).stat().st_mtime
        marker.listed(path)
        return run | _fields(RunFollower(path).look()) | {"settings": read_settings(path)}
    except HogbatchError as error:
        problem = str(error).replace(f"{path}/", "")
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    return run | {"problem": problem}


def _fields(report: RunReport) -> ListedRun:
    run, best = report.run, report.run.best
    values = best.validation_values if best else {}
    metric, value = next(iter(values.items()), (None, None))
    # those that have not left, or all of them if none is there
    devices = [worker.device for worker in run.present or run.workers]
    kinds = Counter(each if each.startswith("cpu") else each.partition(":")[0] for each in devices)
    recorded = run.first_at is not None and run.first_at >= YEAR_2000
    return ({"at": run.first_at} if recorded else {}) | {
        "state": report.condition.state,
        "reason": report.condition.reason,
        "validation_loss": best.validation_loss if best else None,
        "test_loss": run.tested.loss if run.tested else None,
        "metric": metric,
        "value": value,
        "seconds": run.seconds,
        "epochs": run.epochs,
        "rows": run.rows.value,
        "rows_per_second": run.rows_per_second,
        "workers": ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in kinds.items()),
    }


def table_lines(runs: Sequence[ListedRun], width: int) -> list[str]:
    """Two lines or more for each run: its results; start, workers and differing settings."""
    readable = [run for run in runs if not run["problem"]]
    heading, *rows = aligned([HEADER, *map(_cells, readable)], width)
    lines = [heading]
    for run in runs:
        if run["problem"]:
            lines.append(printable(Path(run["run_dir"]).name))
            texts = [f"damaged: {run['problem']}"]
        else:
            lines.append(rows.pop(0))
            started = datetime.fromtimestamp(run["at"]).strftime("%Y-%m-%d %H:%M")
            flags = (as_flag(*each) for each in run["settings"].items() if each[1] is not None)
            texts = [started, run["workers"], *flags]
        about = filled(map(printable, filter(None, texts)), width - len(INDENT))
        lines += [INDENT + line for line in about]
    return lines


def _cells(run: ListedRun) -> tuple[str, ...]:
    return (
        printable(Path(run["run_dir"]).name),
        run["state"],
        f"{run['metric']} {figure(run['value'])}" if run["metric"] else "-",
        figure(run["validation_loss"]),
        f"{run['seconds']:.2f}",
        shown(run["rows_per_second"], ",.0f"),
    )


def as_flag(key: str, value: object) -> str:
    """A setting as it is given to `hogbatch train`."""
    if isinstance(value, bool):
        return f"--{key}" if value else f"--no-{key}"
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return shlex.quote(text) if key == "data" else f"--{key} {shlex.quote(text)}"
