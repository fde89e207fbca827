"""How often the model went back to its last good copy, and how many of these still count.

Each roll-back halves the learning rate, and after a few without progress between them the run
ends. Progress takes one back, together with its halving, so that a long run survives any number of
isolated ones. Dynamic loss scaling (Micikevicius et al. 2018) works in the same way.
"""

from dataclasses import dataclass

MAX_ROLLBACKS = 3  # that count; then the run ends
PROGRESS = 4  # times the rows that a roll-back discarded, trained without another


@dataclass(slots=True)
class RollBacks:
    """Roll-backs of one run; `rows` is always the number of rows trained on since its start."""

    total: int = 0
    counted: int = 0  # no progress has taken these back yet
    finite_at: int = 0  # rows, when the model was last found to be finite
    since: int = 0  # rows, at the last roll-back or when one was last taken back
    period: int = 0  # rows of training that count as progress

    def add(self, rows: int) -> None:
        """The model goes back to what it was at `finite_at`."""
        self.total += 1
        self.counted += 1
        self.period = PROGRESS * (rows - self.finite_at)
        self.since = self.finite_at = rows

    def found_finite(self, rows: int) -> bool:
        """The model after `rows` rows is finite; whether this takes a roll-back back."""
        self.finite_at = rows
        if not self.counted or rows - self.since <= self.period:
            return False
        self.counted -= 1
        self.since = rows
        return True

    @property
    def too_many(self) -> bool:
        """Whether the run is to end."""
        return self.counted >= MAX_ROLLBACKS

    @property
    def rate_factor(self) -> float:
        """What the learning rate is multiplied by."""
        return float(0.5**self.counted)
