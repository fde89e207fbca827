"""Protocols of everything outside that the coordinator's loop uses; the run implements them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from hogbatch.config.sets import SetName
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.events.event import AnyEvent, CheckpointWritten, WorkerGivenUp, WorkerRestarted
from hogbatch.events.records import Evaluation, RunTotals
from hogbatch.wire.channel import CoordinatorChannel


class ProcessAdapter:
    """The worker processes that this run has started itself; without overrides there are none."""

    def pids(self) -> list[int]:
        """All pids on this server; the loop watches for their exit."""
        return []

    def cause_of_death(self, pid: int) -> str:
        """The exit of process `pid` in words, as far as it is known."""
        return f"process {pid} exited"

    def died(self, pid: int, worked: bool, now: float) -> WorkerGivenUp | None:
        """Process `pid` has exited; `worked`: it had finished a lease.

        Schedules a restart if this run started the process and a new one may succeed.
        """
        return None

    def start_due(self, now: float) -> Iterator[WorkerRestarted | WorkerGivenUp]:
        """Restart the workers whose restart is due."""
        return iter(())

    def all_ended(self) -> str | None:
        """A message if workers were started, all have exited and none will be restarted."""
        return None


class CheckpointAdapter(Protocol):
    """A checkpoint to write."""

    @property
    def about(self) -> CheckpointWritten:
        """The event that it is written."""

    def write(self) -> str | None:
        """Write it; return why that failed, if it did. May take long."""


class SnapshotAdapter(Protocol):
    """Snapshots of the model."""

    def draft(self, saved: SavedState) -> CheckpointAdapter:
        """Begin a checkpoint with the current state of everything except the model."""

    def copy(self, draft: Any) -> str | None:
        """Copy the model, also into `draft`; return the parameter that is not finite, if any.

        May take long. ConnectionError if no server that has the model can be reached.
        """

    def roll_back(self) -> None:
        """Restore the model from the last copy that was kept."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """The interfaces that every coordinator needs besides its state, as set up by the run."""

    endpoint: CoordinatorChannel
    attached_by: Callable[[int], bool]  # whether a process has mapped the segments of this run
    revoke: Callable[[int], object]  # ends the right of this worker to write to the model
    processes: ProcessAdapter
    shuffle: Callable[[int, int], None]  # writes a row order; called on another thread
    quarantine: Callable[[int, int, int], None]
    record: Callable[[AnyEvent], object]
    write_due: Callable[[], object]  # writes events that the log has held back, if it is time


@dataclass(frozen=True, slots=True)
class RunAdapters(Adapters):
    """The same for a coordinator that decides about the model."""

    snapshots: SnapshotAdapter
    report: Callable[[Evaluation, RunTotals], None]
    show_mean: Callable[[bool], None]
    show_kept: Callable[[bool], None]
    keep: Callable[[Evaluation | None], None]
    measure: Callable[[SetName, str | None], dict[str, float]]
    # Does what LoadServer says, on another thread; returns why that failed, if it did. None: the
    # workers share one model.
    load_server: Callable[[str, str | None], str | None] | None = None
