"""The first update after which the model was not finite, or its training loss had jumped."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hogbatch.replay.results import Update

JUMP = 3.0  # times the usual loss per row
BLOCK_ROWS = 256  # minimum number of rows whose mean loss is compared
USUAL_BLOCKS = 20  # blocks whose mean loss is the usual one
MIN_BLOCKS = 5  # before the first comparison


class Finding(NamedTuple):
    """An update after which the model was bad."""

    what: str
    update: Update


@dataclass(slots=True)
class LossJumps:
    """Finds the first block of updates whose training loss is far above that of those before."""

    found: Finding | None = None
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=USUAL_BLOCKS))
    _first: Update | None = None  # of the current block
    _before: Update | None = None  # the last one before it
    _last: Update | None = None
    _loss: float = 0.0
    _rows: int = 0

    def add(self, update: Update) -> None:
        """Add the next update. Its loss was measured before the update."""
        if self._first is None:
            self._first, self._before = update, self._last
            self._loss, self._rows = 0.0, 0
        self._last = update
        self._loss += update.loss
        self._rows += update.rows - update.skipped
        if self._rows >= BLOCK_ROWS:
            self._end_block(self._loss / self._rows)
            self._first = None

    def _end_block(self, loss: float) -> None:
        usual = sum(self._usual) / len(self._usual) if self._usual else math.inf
        enough = len(self._usual) >= MIN_BLOCKS
        if self.found is None and enough and loss > JUMP * usual and self._before is not None:
            what = f"the training loss rose from {usual:.4g} to {loss:.4g} per row after"
            self.found = Finding(what, self._before)
        self._usual.append(loss)


@dataclass(slots=True)
class FiniteChecks:
    """Finds the first update after which the model was not finite.

    `find` returns the place of the first NaN or Inf in the model, or an empty text. It is slow for
    a large model. So it is called after each update from number `first` on, and before that only
    after updates that skipped rows: if the model is not finite then, an earlier update may have
    caused it.
    """

    find: Callable[[], str]
    first: int | None = None
    finite: int = 0  # the last update after which the model is known to have been finite
    suspect: int | None = None  # the first one after which the model was found not to be finite
    found: Finding | None = None

    def add(self, update: Update) -> None:
        """Add the next update; the model contains it."""
        if self.found is not None:
            return
        each = self.first is not None and update.number >= self.first
        if each and (where := self.find()):
            self.found = Finding(f"the model was not finite at {where} after", update)
        elif not each and self.suspect is None and update.skipped:
            self.check(update.number)

    def check(self, number: int) -> None:
        """Check the model after update `number`."""
        if self.suspect is not None:
            return
        if self.find():
            self.suspect = number
        else:
            self.finite = number
