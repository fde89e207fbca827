"""The epochs of a run: which rows each one has, and whether its row order is ready."""

from dataclasses import dataclass, field

from hogbatch.coordinator.commands import Command, Quarantine, Record, Shuffle
from hogbatch.coordinator.ledger import Ledger, RowRange
from hogbatch.coordinator.worker import SUSPECT_DEATHS
from hogbatch.events.event import EpochEnded, Quarantined

MAX_DEATHS = SUSPECT_DEATHS + 1  # of workers on one batch; then it is quarantined


@dataclass(slots=True)
class Epochs:
    """The current epoch, numbered from 0. Quarantined rows are left out of later epochs.

    With several servers they are not: the order of each server has all rows, because no server
    knows which rows the coordinator has quarantined. They are left out of the current epoch only.
    """

    train_rows: int
    parts: tuple[int, ...] = ()  # rows of each part of divided data
    all_rows: bool = False  # whether every order has all rows, as with several servers
    number: int = 0  # of the current epoch
    quarantined: int = 0  # rows, so far
    rows: Ledger = field(init=False)  # of the current epoch
    _requested: dict[int, int] = field(default_factory=dict)  # epoch → number of excluded rows
    _ready: dict[int, int] = field(default_factory=dict)  # the same, for orders that are written

    def __post_init__(self) -> None:
        self.rows = Ledger(self.train_rows, self.parts)

    @property
    def _excluded(self) -> int:
        """Rows that are left out of the next epoch."""
        return 0 if self.all_rows else self.quarantined

    def resume(self, number: int, quarantined: int, rows: int, todo: list[RowRange]) -> None:
        """Continue in the middle of epoch `number` of `rows` rows, of which `todo` are left.

        If all rows are in the order, but were not before the run was resumed, the others are left.
        """
        self.number, self.quarantined = number, quarantined
        if self.all_rows and rows < self.train_rows:
            todo, rows = [*todo, RowRange(rows, self.train_rows)], self.train_rows
        self.rows = Ledger.resumed(rows, todo, self.parts)

    def begin(self) -> list[Command]:
        """Request the order of the first epoch."""
        return self._request(self.number, self.train_rows - self.rows.rows)

    def order_ready(self, epoch: int, without: int) -> None:
        """The order of `epoch` is written, with the first `without` quarantined rows excluded."""
        if self._requested.get(epoch) == without:  # else it answers an earlier request
            self._ready[epoch] = without

    @property
    def ready(self) -> bool:
        """Whether rows of the current epoch can be handed out."""
        return self._ready.get(self.number) == self.train_rows - self.rows.rows

    def prepare_next(self) -> list[Command]:
        """Request the order of the next epoch, to be written while this one runs."""
        return self._request(self.number + 1, self._excluded)

    def end(self) -> list[Command]:
        ended = Record(EpochEnded(self.number, self.rows.acknowledged))
        self._ready.pop(self.number, None)
        self._requested.pop(self.number, None)
        self.number += 1
        self.rows = Ledger(self.train_rows - self._excluded, self.parts)
        return [ended, *self._request(self.number, self._excluded)]

    def take_back(self, lease: int, died: bool) -> list[Command]:
        """Return the rows of `lease` to the queue; `died`: they may have killed their worker.

        Quarantines them instead if they have killed too many.
        """
        start, stop, deaths = self.rows.held[lease]
        deaths += died
        if deaths < MAX_DEATHS:
            self.rows.take_back(lease, died)
            return []
        self.rows.acknowledge(lease, stop - start)
        self.quarantined += stop - start
        quarantined = Quarantined(self.number, [start, stop], deaths)
        return [Quarantine(self.number, start, stop), Record(quarantined)]

    def _request(self, epoch: int, without: int) -> list[Command]:
        if self._requested.get(epoch) == without:
            return []
        self._requested[epoch] = without
        return [Shuffle(epoch, without)]
