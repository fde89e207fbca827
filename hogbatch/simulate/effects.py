"""Effects of the coordinator's commands outside of its state."""

from typing import Protocol

from hogbatch.coordinator.saved_state import SavedState
from hogbatch.events.event import AnyEvent
from hogbatch.events.records import Evaluation, RunTotals


class Effects(Protocol):
    """Carries out commands; the counterpart of `coordinator.adapters.Adapters`.

    Methods that take time in a real run return the seconds until their result is known.
    """

    def fence(self, number: int) -> int:
        """The fence of worker `number`."""

    def revoke(self, number: int) -> None:
        """Raise the fence of worker `number`."""

    def shuffle(self, epoch: int, without: int) -> float:
        """Write the row order of `epoch`, with the first `without` quarantined rows last."""

    def quarantine(self, epoch: int, start: int, stop: int) -> None:
        """Exclude rows [start, stop) of the order of `epoch` from later epochs."""

    def copy_seconds(self) -> float:
        """Seconds until `copy` is called."""

    def copy(self) -> str | None:
        """Take a snapshot of the model; return the parameter that is not finite, if any."""

    def roll_back(self) -> None:
        """Restore the model from the last snapshot."""

    def record(self, event: AnyEvent) -> None:
        """Append an event to the event log."""

    def report(self, evaluation: Evaluation, totals: RunTotals) -> None:
        """Report an evaluation to the user."""

    def show_mean(self, shown: bool) -> None:
        """Replace the model by its moving mean, or restore the model."""

    def keep(self, evaluation: Evaluation | None) -> None:
        """Copy the parameters in their current state."""


class Checkpoints(Protocol):
    """Writes checkpoints."""

    def write_seconds(self) -> float:
        """Seconds until `write` is called."""

    def write(self, saved: SavedState) -> str | None:
        """Write the snapshot as a checkpoint; return why that failed, if it did."""
