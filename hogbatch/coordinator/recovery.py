"""When a run secures what it has learnt, and what it does when the model has gone bad."""

import math
from dataclasses import dataclass, field

from hogbatch.coordinator.commands import Command, Record, RollBack
from hogbatch.coordinator.health import WORTH_SAYING
from hogbatch.coordinator.progress import Sums
from hogbatch.coordinator.rollbacks import MAX_ROLLBACKS, RollBacks

MAX_PAUSE = 16  # times `every`, between attempts to write a checkpoint that fail
MAX_SKIPPED = 0.05  # share of rows; beyond it the model has diverged
MAX_SUSPECTS = 5
MAX_NAMED = 20  # leases with skipped rows that are told of in a run
ADVICE = "lower --lr, or scale features (--scale standard) and labels"


def too_many_skipped(trained: Sums) -> str:
    """Why a run is to end with these rows; empty if it is not."""
    if trained.fraction_skipped <= MAX_SKIPPED:
        return ""
    fraction = f"{trained.fraction_skipped:.0%} of the rows since the last evaluation"
    return f"{fraction} gave no finite gradient; {ADVICE}"


@dataclass(slots=True)
class Recovery:
    """Snapshots, checkpoints and roll-backs.

    `now` is always the caller's clock, `rows` the number of rows trained on since the start. A
    snapshot is a copy of the model that was found to be finite; a checkpoint is one on disk.
    """

    every: float  # seconds between checkpoints; inf: none
    copying: bool = False  # a snapshot is being taken
    writing: bool = False  # a checkpoint is being written
    poisoned: str = ""  # where the model is not finite; a roll-back is due
    rollbacks: RollBacks = field(default_factory=RollBacks)
    suspects: list[dict[str, object]] = field(default_factory=list)  # leases with skipped rows
    # since the last good snapshot, the first few: who first met what is not finite
    _named: int = 0
    _warned: bool = False
    _next: float = math.inf
    _failures: int = 0  # in a row
    _copied_rows: int = 0  # when the snapshot was begun

    def start(self, now: float) -> None:
        """The first checkpoint is due one pause after `now`."""
        self._next = now + self.every

    def is_due(self, now: float) -> bool:
        """Whether it is time for a checkpoint."""
        return now >= self._next and not self.copying and not self.writing

    def begin_snapshot(self, with_checkpoint: bool, rows: int) -> None:
        """A copy is being made; maybe it is written too."""
        self.copying = True
        self._copied_rows = rows
        self.writing = self.writing or with_checkpoint

    def end_snapshot(self, bad: str) -> list[Command]:
        """The copy is made, or was refused because the model is not finite at `bad`."""
        self.copying = False
        self.poisoned = bad
        if bad:
            self.writing = False
            return []
        self.suspects.clear()
        if not self.rollbacks.found_finite(self._copied_rows):
            return []
        fields = {"counted": self.rollbacks.counted, "rate_factor": self.rollbacks.rate_factor}
        return [Record("recovered", fields)]

    def end_checkpoint(self, failed: bool, now: float) -> None:
        """It is written, or has failed: then the next attempt comes later and later."""
        self.writing = False
        self._failures = self._failures + 1 if failed else 0
        self._next = now + self.every * min(2**self._failures, MAX_PAUSE)

    def suspect(self, lease: dict[str, object]) -> list[dict[str, object]]:
        """Remember a lease with rows that gave no finite gradient; it, if it is to be told of."""
        if len(self.suspects) < MAX_SUSPECTS:
            self.suspects.append(lease)
        self._named += 1
        return [lease] if self._named <= MAX_NAMED else []

    def warn(self, trained: Sums, rate: float) -> list[Command]:
        """Tell of rows that are skipped, the first time that they are many."""
        if self._warned or trained.fraction_skipped <= WORTH_SAYING:
            return []
        self._warned = True
        rows = trained.rows + trained.skipped
        fields = {"skipped": trained.skipped, "rows": rows, "skipped_row": trained.skipped_row}
        factor = self.rollbacks.rate_factor
        return [Record("rows_often_skipped", fields | {"rate": rate * factor})]

    def roll_back(self, rows: int) -> list[Command]:
        """Go back to the last good snapshot; see `diverged` for whether the run goes on."""
        where, suspects = self.poisoned, list(self.suspects)
        self.poisoned = ""
        self.suspects.clear()
        self.rollbacks.add(rows)
        times = {"times": self.rollbacks.counted, "most": MAX_ROLLBACKS}
        return [Record("poisoned", {"where": where, **times, "suspects": suspects}), RollBack()]

    def diverged(self, where: str) -> str:
        """Why the run is to end after a roll-back, for the model was not finite at `where`; empty
        if it is not to end.
        """
        if not self.rollbacks.too_many:
            return ""
        times = f"{self.rollbacks.counted} times with too little progress between them"
        return f"the model was not finite {times}, the last time at {where}; {ADVICE}"
