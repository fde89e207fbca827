"""The effects of commands in a simulation: there is no model, only its faults and delays."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from hogbatch.coordinator.saved_state import SavedState
from hogbatch.events.event import AnyEvent
from hogbatch.events.records import Evaluation, RunTotals
from hogbatch.simulate.link_quality import LinkQuality
from hogbatch.wire.messages import Lease


@dataclass(frozen=True, slots=True)
class Conditions:
    """Quality of the simulated environment."""

    network: LinkQuality = field(default_factory=LinkQuality)
    shuffle_seconds: float = 1e-3  # maximum, as for the next two
    copy_seconds: float = 1e-3
    write_seconds: float = 1e-3
    disk_full: float = 0.0  # probability that a checkpoint cannot be written
    restarts: int | None = 0  # of all workers together; None: unlimited
    bad_rows: int = 0  # of the training set, which kill workers that train on them


@dataclass(slots=True)
class SimulatedModel:
    """A model that may be corrupt, on `train_rows` rows of which some kill workers."""

    conditions: Conditions
    train_rows: int
    seed: int
    rng: Random
    corrupted: bool = False
    _fences: Counter[int] = field(default_factory=Counter)
    _quarantined: list[tuple[int, list[int]]] = field(default_factory=list)  # rows, bad ones
    _without: dict[int, int] = field(default_factory=dict)  # epoch → rows left out of its order

    def fence(self, number: int) -> int:
        return self._fences[number]

    def revoke(self, number: int) -> None:
        self._fences[number] += 1

    def shuffle(self, epoch: int, without: int) -> float:
        self._without[epoch] = without
        return self.rng.uniform(0, self.conditions.shuffle_seconds)

    def quarantine(self, epoch: int, start: int, stop: int) -> None:
        positions = self._bad_places(epoch)
        bad = [row for position, row in positions.items() if start <= position < stop]
        self._quarantined.append((stop - start, bad))

    def deadly_row(self, lease: Lease) -> int | None:
        """The first row of `lease` that kills workers that train on it; None without one."""
        if lease.task != "train" or not self.conditions.bad_rows:
            return None
        places = self._bad_places(lease.epoch)
        return min((row for row in places if lease.start <= row < lease.stop), default=None)

    def _bad_places(self, epoch: int) -> dict[int, int]:
        """Places of the bad rows in the order of `epoch`, without quarantined ones: place → row."""
        without = self._without[epoch]
        last, gone = self.train_rows - without, set[int]()
        for rows, bad in self._quarantined:
            gone.update(bad if without > 0 else ())
            without -= rows
        return {
            Random(f"{self.seed} {row} {epoch}").randrange(max(1, last)): row
            for row in range(self.conditions.bad_rows)
            if row not in gone
        }

    def copy_seconds(self) -> float:
        return self.rng.uniform(0, self.conditions.copy_seconds)

    def copy(self) -> str | None:
        return self.not_finite_at

    @property
    def not_finite_at(self) -> str | None:
        """The parameter that is not finite, if any."""
        return "layers.0.weight[1, 2]" if self.corrupted else None

    def write_seconds(self) -> float:
        return self.rng.uniform(0, self.conditions.write_seconds)

    def write(self, saved: SavedState) -> str | None:
        del saved
        full = self.rng.random() < self.conditions.disk_full
        return "No space left on device" if full else None

    def roll_back(self) -> None:
        self.corrupted = False

    def restart(self, saved: SavedState | None) -> None:
        """A new coordinator process starts, from `saved` if there is a checkpoint."""
        self.corrupted = False
        self._fences.clear()
        quarantined = saved.quarantined if saved else 0
        while self._quarantined and sum(rows for rows, _ in self._quarantined) > quarantined:
            self._quarantined.pop()

    # Nothing is recorded.

    def record(self, event: AnyEvent) -> None:
        del event

    def report(self, evaluation: Evaluation, totals: RunTotals) -> None:
        del evaluation, totals

    def show_mean(self, shown: bool) -> None:
        del shown

    def keep(self, evaluation: Evaluation | None) -> None:
        del evaluation
