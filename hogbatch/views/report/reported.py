"""Inputs of a report: runs, their settings, and what it shows of their predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hogbatch.events.state import RunState
from hogbatch.views.status.run_files import RunReport

if TYPE_CHECKING:  # they need NumPy and Matplotlib
    from hogbatch.model.importances import Importance
    from hogbatch.views.report.chart import Chart

MARK: Final = '<meta name="generator" content="hogbatch report">'  # by which a report is recognised


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table in words; the first cell of a row is its heading."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()  # columns that are aligned on the right
    note: str = ""
    beneath: frozenset[int] = frozenset()  # rows that belong to one above them
    shades: tuple[tuple[float, ...], ...] = ()  # of the cells after the headings, 0 to 1


class Predictions(NamedTuple):
    """Those of the saved model on held-out rows; none if the report has none for such labels."""

    shown: "Sequence[ReportTable | Chart]" = ()
    importances: "Sequence[Importance]" = ()  # of the columns of a table
    left_out: str = ""  # why there are no predictions


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run of a report; `name` differs from those of the others."""

    name: str
    report: RunReport
    settings: Mapping[str, Any] = field(default_factory=dict)
    settings_problem: str | None = None  # why they could not be read
    predictions: Predictions = field(default_factory=Predictions)

    @property
    def run(self) -> RunState:
        """The run, as its events describe it."""
        return self.report.run
