"""Inputs of a report: runs, their settings, and the quality of their predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hogbatch.events.state import RunState
from hogbatch.views.status.run_files import RunReport

MARK: Final = '<meta name="generator" content="hogbatch report">'  # by which a report is recognised


class Bin(NamedTuple):
    """The test rows with similar predicted probabilities of the second label."""

    predicted: float  # mean of the probabilities
    observed: float  # fraction of the rows that have the label
    rows: int


@dataclass(frozen=True, slots=True)
class Quality:
    """The predictions of the saved model on the test set."""

    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]  # rows by true label, then by predicted label
    bins: tuple[Bin, ...] = ()  # of two labels, if the model has probabilities


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why there is no `Quality`."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run of a report; `name` differs from those of the others."""

    name: str
    report: RunReport
    settings: Mapping[str, Any] = field(default_factory=dict)
    settings_problem: str | None = None  # why they could not be read
    quality: Quality | LeftOut | None = None  # None: not defined for this kind of labels

    @property
    def run(self) -> RunState:
        """The run, as its events describe it."""
        return self.report.run

    @property
    def rehearsed(self) -> str | None:
        """The name of the simulated server, if the run was rehearsed."""
        return self.run.rehearsed
