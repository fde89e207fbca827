"""The interface of an experiment tracker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

Setting = str | int | float | bool

# How a run has ended: as in summary.json, or "killed" if its coordinator does not exist any more.
Status = Literal["finished", "target", "time", "stopped", "failed", "killed"]


MAX_POINTS: Final = 50  # that a tracker is given at once


class Point(NamedTuple):
    """The values of one evaluation."""

    step: int  # rows trained on
    seconds: float  # of training
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunDescription:
    """A run at its start."""

    run_dir: str  # an absolute path
    settings: Mapping[str, Setting]
    began_at: float  # Unix seconds at 0 training seconds; pauses before a resume do not count
    # rows at the last evaluation in the checkpoint that it resumes, or -1; None: a new run
    resumed_rows: int | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run has ended."""

    status: Status
    reason: str = ""
    test_loss: float | None = None  # of the kept model
    model: str | None = None  # path of the model file; None: no model was saved

    @property
    def succeeded(self) -> bool:
        """Whether the run has ended by itself, without an error."""
        return self.status in ("finished", "target", "time")

    def named(self) -> dict[str, str | float]:
        """The result under the names that it has in all trackers, without what is not known.

        An empty reason replaces that of an earlier end, if the run was resumed.
        """
        named = {
            "result/status": self.status,
            "result/reason": self.reason,
            "result/test_loss": self.test_loss,
            "result/model": self.model,
        }
        return {name: value for name, value in named.items() if value is not None}


class Tracker(Protocol):
    """Stores the values of one run. Methods may take long, and may raise any exception.

    They are called in their order: `start`, any number of times `log`, `finish`. After an
    exception, only `abandon` may follow.
    """

    def start(self, run: RunDescription) -> str:
        """Begin a run, or continue a resumed one; return a sentence for the user, or ""."""

    def log(self, points: Sequence[Point]) -> None:
        """Store evaluations: all that have come since the last call, at most MAX_POINTS."""

    def finish(self, result: RunResult) -> None:
        """Store the result, and wait until everything is stored."""

    def abandon(self) -> None:
        """End now, without waiting; may be called on another thread. Never raises."""
