"""Roll-backs of the model: how many there were, and how many of them still count.

Each roll-back halves the learning rate, and after MAX_ROLLBACKS without progress between them the
run ends. Progress cancels one of them together with its halving (docs/decisions, 31).
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from hogbatch.events.records import Count

MAX_ROLLBACKS = 3  # with this number of roll-backs that count, the run ends
PROGRESS = 4  # times the rows that a roll-back discarded: rows trained without another roll-back


@dataclass(slots=True)
class RollBacks:
    """Roll-backs of one run; `rows` is always the number of rows trained on since its start.

    It is part of SavedState: the field names are a format.
    """

    total: Count = 0
    counted: Annotated[int, Meta(ge=0, le=MAX_ROLLBACKS)] = 0  # not cancelled by progress
    finite_at: Count = 0  # rows, when the model was last found to be finite
    since: Count = 0  # rows, when the last roll-back happened or was cancelled
    period: int = 0  # rows of training that count as progress; also negative

    def add(self, rows: int) -> None:
        """The model is restored to what it was at `finite_at`."""
        self.total += 1
        self.counted += 1
        self.period = PROGRESS * (rows - self.finite_at)
        self.since = self.finite_at = rows

    def found_finite(self, rows: int) -> bool:
        """The model after `rows` rows is finite; return whether this cancels a roll-back."""
        self.finite_at = rows
        if not self.counted or rows - self.since <= self.period:
            return False
        self.counted -= 1
        self.since = rows
        return True

    @property
    def too_many(self) -> bool:
        """Whether the run must end."""
        return self.counted >= MAX_ROLLBACKS

    @property
    def rate_factor(self) -> float:
        return float(0.5**self.counted)
