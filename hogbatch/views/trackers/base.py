"""The interface of an experiment tracker."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

Result = Mapping[str, str | float]  # names as in docs/trackers.md, such as "result/status"


class RunStart(NamedTuple):
    """A run at its start."""

    run_dir: Path  # absolute
    settings: Mapping[str, str | float]
    began_at: float  # Unix seconds at 0 training seconds; pauses before a resume do not count
    # rows at the last evaluation in the checkpoint that it resumes, or -1; None: a new run
    resumed_rows: int | None = None


class Point(NamedTuple):
    """The values of one evaluation."""

    step: int  # rows trained on
    seconds: float  # of training
    values: Mapping[str, float]


class Tracker(Protocol):
    """Logs one run. Its constructor takes a RunStart, and begins or continues the run.

    One thread makes all calls. A call may take long, and may raise any exception; it is then the
    last one.
    """

    note: str | None = None  # a sentence for the user

    def log(self, point: Point) -> None:
        """Log the values of an evaluation."""

    def close(self, result: Result) -> None:
        """Log the result, and wait until everything is stored."""
