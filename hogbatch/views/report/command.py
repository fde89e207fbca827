"""Reads run directories and writes their report."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hogbatch.config.losses import LOSSES
from hogbatch.config.sets import SetName
from hogbatch.errors import DataError, HogbatchError, UsageError, needs_package
from hogbatch.events.names import MODEL, REPORT
from hogbatch.events.state import RunState
from hogbatch.machine.files import replace_file
from hogbatch.version import version
from hogbatch.views.report.reported import MARK, Predictions, ReportedRun
from hogbatch.views.status.run_files import RunFollower, expect_run, read_settings, read_summary

MAX_RUNS: Final = 24
if TYPE_CHECKING:  # these need NumPy
    from hogbatch.config.train import TrainConfig
    from hogbatch.data.load import LoadedData
    from hogbatch.views.console import Console

    ReadData = Callable[[TrainConfig, Console], LoadedData]

HEAD: Final = 2048  # bytes by which a report is recognised


def write_report(run_dirs: Sequence[Path], output: Path | None, read_data: "ReadData") -> Path:
    """Write the report of some runs and return its path.

    The path is `output` if given, else RUN_DIR/report.html for one run, and report.html in the
    working directory for several. `read_data` reads the data of a run, for the predictions of its
    model. UsageError if a path is not a run directory, if there are too many, if Matplotlib is not
    installed, or if the file exists and is not a report, or cannot be written.
    """
    if len(run_dirs) > MAX_RUNS:
        raise UsageError(f"expected at most {MAX_RUNS} run directories; got {len(run_dirs)}")
    for run_dir in run_dirs:
        expect_run(run_dir)
    path = output or (run_dirs[0] / REPORT if len(run_dirs) == 1 else Path(REPORT))
    _expect_replaceable(path)
    # No warnings about the user's settings and font cache, which have no effect on a report.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    os.environ.pop("MPLBACKEND", None)  # Matplotlib cannot be imported if it is invalid
    with needs_package("a report", "matplotlib", "report"):
        from hogbatch.views.report.page import page
    names = [run_dir.resolve().name for run_dir in run_dirs]
    if len(set(names)) < len(names):
        names = [f"{run_dir} ({number})" for number, run_dir in enumerate(run_dirs, 1)]
    named = zip(run_dirs, names, strict=True)
    runs = [read_run(run_dir, name, read_data) for run_dir, name in named]
    try:
        replace_file(path, [page(runs, version()).encode()])
    except OSError as error:
        raise UsageError(
            f"{path}: cannot write the report: {error.strerror or error}; "
            "give another file with --output"
        ) from None
    return path


def read_run(run_dir: Path, name: str, read_data: "ReadData") -> ReportedRun:
    """A run as it is now. DataError if its events cannot be read."""
    report = RunFollower(run_dir).look()
    settings: dict[str, Any] = {}
    problem = None
    try:
        settings = read_settings(run_dir)
    except DataError as error:
        problem = str(error)
    try:
        predictions = _predictions(run_dir, report.run, read_data)
    except MemoryError:
        predictions = Predictions(left_out="there is not enough memory for the data.")
    except (HogbatchError, OSError, KeyError, TypeError, ValueError) as error:
        predictions = Predictions(left_out=str(error))
    return ReportedRun(name, report, settings, problem, predictions)


def _predictions(run_dir: Path, run: RunState, read_data: "ReadData") -> Predictions:
    """The predictions of the saved model on the test set, or on the validation set without one.

    There are none if the run has neither or has label lists. Errors as of `measure`.
    """
    started = run.started
    if started is None or started.loss not in LOSSES or LOSSES[started.loss].label_lists:
        return Predictions()
    name: SetName = "test" if started.test_rows else "validation"
    rows = started.test_rows or started.validation_rows
    if not rows:
        return Predictions()
    if not (run_dir / MODEL).is_file():
        raise DataError("the run has not saved a model.")
    result = (read_summary(run_dir) or {}).get(name)
    if run.ended is None or not isinstance(result, dict):
        raise DataError(f"the run has not recorded the {name} loss of its model.")
    # Imported here: it needs NumPy, and reading data needs Numba.
    from hogbatch.views.report.evaluation import measure

    return measure(run_dir, name, float(result["loss"]), rows, read_data)


def _expect_replaceable(path: Path) -> None:
    """UsageError if there is something at `path` that is not a report."""
    advice = "give another file with --output"
    try:
        if not os.path.lexists(path):
            return
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if MARK.encode() in file.read(HEAD):
                    return
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; {advice}") from None
    raise UsageError(f"{path} exists and is not a report of hogbatch; {advice}")
