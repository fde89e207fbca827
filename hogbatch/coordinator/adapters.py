"""What the coordinator's loop uses of everything outside."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hogbatch.events.event import AnyEvent, WorkerGivenUp, WorkerRestarted
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


@dataclass(frozen=True, slots=True)
class Adapters:
    """What the loop of every coordinator needs besides its state, as set up by the run."""

    endpoint: CoordinatorChannel
    attached_by: Callable[[int], bool]  # whether a process has mapped the segments of this run
    processes: ProcessAdapter
    shuffle: Callable[[int, int], None]  # writes a row order; called on another thread
    record: Callable[[AnyEvent], object]
    write_due: Callable[[], object]  # writes events that the log has held back, if it is time
