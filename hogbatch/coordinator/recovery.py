"""Decides about snapshots and checkpoints, and about a model that is not finite."""

import math
from dataclasses import dataclass, field

from hogbatch.coordinator.commands import Command, Record, RollBack
from hogbatch.coordinator.progress import LossSums
from hogbatch.coordinator.saved_state import MAX_ROLLBACKS, RollBacks
from hogbatch.events.event import Poisoned, Recovered, RowsOftenSkipped, RowsSkipped

MAX_PAUSE = 16  # times `every`, between two attempts to write a checkpoint
WARNING_FRACTION = 0.001  # of rows that are skipped
MAX_SKIPPED = 0.05  # fraction of rows; beyond it the model has diverged
MAX_SUSPECTS = 5
MAX_NAMED = 20  # leases with skipped rows or refused merges that are reported in one run
ADVICE = "lower --lr, or scale features (--scale standard) and labels"


def too_many_skipped(trained: LossSums) -> str | None:
    """Why a run with these skipped rows must end; None if it need not."""
    if trained.fraction_skipped <= MAX_SKIPPED:
        return None
    fraction = f"{trained.fraction_skipped:.0%} of the rows since the last evaluation"
    return f"{fraction} gave no finite gradient; {ADVICE}"


@dataclass(slots=True)
class Recovery:
    """Snapshots, checkpoints and roll-backs.

    `now` is always the caller's clock, `rows` the number of rows trained on since the start. A
    snapshot is a copy in memory of a model that was found to be finite; a checkpoint is on disk.
    """

    every: float  # seconds between checkpoints; inf: none
    copying: bool = False  # a snapshot is being taken
    writing: bool = False  # a checkpoint is being written
    not_finite_at: str | None = None  # the parameter that is not finite; a roll-back is due
    rollbacks: RollBacks = field(default_factory=RollBacks)
    # the first leases with skipped rows since the last good snapshot: possible causes
    suspects: list[RowsSkipped] = field(default_factory=list)
    _named: int = 0
    _warned: bool = False
    _next: float = math.inf
    _failures: int = 0  # in a row
    copied_rows: int = 0  # in the last snapshot
    _begun_rows: int = 0  # when the snapshot was begun

    def start(self, now: float) -> None:
        """Start the interval before the first checkpoint at `now`."""
        self._next = now + self.every

    def is_due(self, now: float, at_once: bool = False) -> bool:
        """Whether it is time for a checkpoint; `at_once`: for the first one it is."""
        due = now >= self._next or (at_once and self.copied_rows == 0)
        return due and not self.copying and not self.writing

    def begin_snapshot(self, with_checkpoint: bool, rows: int) -> None:
        """The model is being copied; with `with_checkpoint` the copy is also written."""
        self.copying = True
        self._begun_rows = rows
        self.writing = self.writing or with_checkpoint

    def end_snapshot(self, not_finite_at: str | None) -> list[Command]:
        """The copy is made, or was refused because of the parameter `not_finite_at`."""
        self.copying = False
        self.not_finite_at = not_finite_at
        if not_finite_at:
            self.writing = False
            return []
        self.suspects.clear()
        self.copied_rows = self._begun_rows
        if not self.rollbacks.found_finite(self.copied_rows):
            return []
        return [Record(Recovered(self.rollbacks.counted, self.rollbacks.rate_factor))]

    def end_checkpoint(self, failed: bool, now: float) -> None:
        """The checkpoint is written or has failed; after failures the pauses double."""
        self.writing = False
        self._failures = self._failures + 1 if failed else 0
        self._next = now + self.every * min(2**self._failures, MAX_PAUSE)

    def suspect(self, lease: RowsSkipped) -> list[RowsSkipped]:
        """Remember a lease with skipped rows; return it in a list if it is to be reported."""
        if len(self.suspects) < MAX_SUSPECTS:
            self.suspects.append(lease)
        return [lease] if self.names_another() else []

    def names_another(self) -> bool:
        """Whether one more lease with skipped rows or refused merges gets an event of its own."""
        self._named += 1
        return self._named <= MAX_NAMED

    def warn(self, trained: LossSums, rate: float) -> list[Command]:
        """Warn about skipped rows, once, when they are frequent."""
        if self._warned or trained.fraction_skipped <= WARNING_FRACTION:
            return []
        self._warned = True
        rows, rate = trained.rows + trained.skipped, rate * self.rollbacks.rate_factor
        return [Record(RowsOftenSkipped(trained.skipped, rows, trained.skipped_row, rate))]

    def roll_back(self, rows: int) -> list[Command]:
        """Restore the last good snapshot; `diverged` decides whether the run continues."""
        where, suspects = self.not_finite_at, [lease.fields for lease in self.suspects]
        self.not_finite_at = None
        self.suspects.clear()
        self.rollbacks.add(rows)
        poisoned = Poisoned(where, self.rollbacks.counted, MAX_ROLLBACKS, suspects)
        return [Record(poisoned), RollBack()]

    def diverged(self, where: str | None) -> str | None:
        """Why the run must end after a roll-back caused by the parameter at `where`; None if it
        need not.
        """
        if not self.rollbacks.too_many:
            return None
        times = f"{self.rollbacks.counted} times with too little progress between them"
        return f"the model was not finite {times}, the last time at {where}; {ADVICE}"
