"""The epochs of a run: which rows each has, and whether their order is ready."""

from dataclasses import dataclass, field

from hogbatch.coordinator.commands import Command, Quarantine, Record, Shuffle
from hogbatch.coordinator.ledger import Ledger, Span
from hogbatch.coordinator.worker import ON_TRIAL

MAX_DEATHS = ON_TRIAL + 1  # of workers on one batch; then it is left out


@dataclass(slots=True)
class Epochs:
    """Counts from 0; rows that were quarantined are in no later epoch."""

    train_rows: int
    number: int = 0  # of the epoch at hand
    quarantined: int = 0  # rows, so far
    rows: Ledger = field(init=False)  # of the epoch at hand
    _asked: dict[int, int] = field(default_factory=dict)  # epoch → rows it is to be without
    _ready: dict[int, int] = field(default_factory=dict)  # the same where the order is written

    def __post_init__(self) -> None:
        self.rows = Ledger(self.train_rows)

    def resume(self, number: int, quarantined: int, rows: int, todo: list[Span]) -> None:
        """Go on in the middle of epoch `number` of `rows` rows, of which `todo` are left."""
        self.number, self.quarantined = number, quarantined
        self.rows = Ledger.resumed(rows, todo)

    def begin(self) -> list[Command]:
        """Have the first order written."""
        return self._ask(self.number, self.train_rows - self.rows.rows)

    def order_ready(self, epoch: int, without: int) -> None:
        """The order of `epoch` is written, `without` rows of those quarantined."""
        if self._asked.get(epoch) == without:  # not an answer to what was asked before
            self._ready[epoch] = without

    @property
    def ready(self) -> bool:
        """Whether rows of the epoch at hand can be handed out."""
        return self._ready.get(self.number) == self.train_rows - self.rows.rows

    def prepare_next(self) -> list[Command]:
        """Have the order of the next epoch written while this one runs."""
        return self._ask(self.number + 1, self.quarantined)

    def end(self) -> list[Command]:
        """Go on to the next epoch."""
        ended = Record("epoch", {"epoch": self.number, "rows": self.rows.acknowledged})
        self._ready.pop(self.number, None)
        self._asked.pop(self.number, None)
        self.number += 1
        self.rows = Ledger(self.train_rows - self.quarantined)
        return [ended, *self._ask(self.number, self.quarantined)]

    def lose(self, lease: int, died: bool) -> list[Command]:
        """Take the rows of `lease` back, from a worker that may have died of them."""
        start, stop, deaths = self.rows.give_back(lease, died)
        if deaths < MAX_DEATHS:
            return []
        self.rows.take(lease, stop - start)
        self.rows.acknowledge(lease, stop - start)
        self.quarantined += stop - start
        fields = {"epoch": self.number, "rows": [start, stop], "deaths": deaths}
        return [Quarantine(self.number, start, stop), Record("quarantined", fields)]

    def _ask(self, epoch: int, without: int) -> list[Command]:
        if self._asked.get(epoch) == without:
            return []
        self._asked[epoch] = without
        return [Shuffle(epoch, without)]
