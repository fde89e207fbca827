"""Inputs of a report: runs, their settings, and the quality of their predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from hogbatch.config.sets import SetName
from hogbatch.events.state import RunState
from hogbatch.views.status.run_files import RunReport

if TYPE_CHECKING:  # it needs NumPy
    from hogbatch.model.importances import Importance

MARK: Final = '<meta name="generator" content="hogbatch report">'  # by which a report is recognised


class Bin(NamedTuple):
    """The rows with similar predicted probabilities of the second label."""

    predicted: float  # mean of the probabilities
    observed: float  # fraction of the rows that have the label
    rows: int


@dataclass(frozen=True, slots=True)
class Quality:
    """The predictions of the saved model on held-out rows, of few classes."""

    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]  # rows by true label, then by predicted label
    bins: tuple[Bin, ...] = ()  # of two labels, if the model has probabilities
    rows_of: SetName = "test"


class ClassResult(NamedTuple):
    """The rows of one class."""

    label: str
    rows: int
    correct: int
    mistaken_for: str  # the most frequent wrong prediction; empty: there is none
    mistakes: int  # rows with this prediction


@dataclass(frozen=True, slots=True)
class ManyClasses:
    """The predictions of a saved model with more classes than a confusion matrix can show."""

    classes: int  # with rows
    rows: int
    correct: int
    mean_correct: float  # mean over the classes of the fraction that is predicted correctly
    worst: tuple[ClassResult, ...]
    rows_of: SetName = "test"


class Residuals(NamedTuple):
    """Rows with similar residuals, predicted minus true number."""

    low: float
    high: float
    rows: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """The predicted numbers of the saved model on held-out rows; of several targets, measures."""

    measures: tuple[tuple[str, float], ...]
    points: tuple[tuple[float, float], ...]  # true and predicted number of some rows
    residuals: tuple[Residuals, ...]  # the outer ones contain all larger residuals
    rows_of: SetName = "test"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why there are no predictions."""

    reason: str


Predictions: TypeAlias = Quality | ManyClasses | Numbers | LeftOut


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run of a report; `name` differs from those of the others."""

    name: str
    report: RunReport
    settings: Mapping[str, Any] = field(default_factory=dict)
    settings_problem: str | None = None  # why they could not be read
    quality: Predictions | None = None  # None: not defined for this kind of labels
    importances: "tuple[Importance, ...]" = ()  # of the columns of a table on held-out rows

    @property
    def run(self) -> RunState:
        """The run, as its events describe it."""
        return self.report.run

    @property
    def rehearsed(self) -> str | None:
        """The name of the simulated server, if the run was rehearsed."""
        return self.run.rehearsed
