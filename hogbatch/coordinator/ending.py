"""The decision to end a run, and the status with which it ends."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hogbatch.coordinator.commands import Status
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.plan import StoppingCriteria
from hogbatch.coordinator.progress import Progress

INTERRUPT_TIMEOUT_S = 4.0  # for leases in flight, once a run is interrupted


@dataclass(slots=True)
class Ending:
    """Decides whether the run must end. `now` is always the caller's clock.

    A run whose end is decided continues until its leases are back and its model is evaluated.
    """

    stopping: StoppingCriteria
    progress: Progress
    part_names: Sequence[str] = ()  # of parts of divided data, for messages
    status: Status | None = None  # set once the end is decided
    reason: str | None = None  # of the first interrupt
    _interrupted_at: float | None = None
    no_workers_since: float | None = None
    # Part of divided data → since when it was needed and no worker has held it.
    _missing_since: dict[int, float] = field(default_factory=dict)

    def decide(self, status: Status) -> None:
        """End the run with `status`, unless its end is decided already."""
        self.status = self.status or status

    def check_epochs(self, epochs: Epochs) -> None:
        """End the run after the last epoch, or when every row is quarantined."""
        limit = self.stopping.epochs
        if epochs.rows.finished or (limit is not None and epochs.number >= limit):
            self.decide("finished")

    def check_limits(self, now: float) -> None:
        """End the run after its maximum training time or number of rows."""
        seconds, rows = self.stopping.max_seconds, self.stopping.max_rows
        if seconds is not None and self.progress.seconds(now) >= seconds:
            self.decide("time")
        if rows is not None and self.progress.rows >= rows:
            self.decide("finished")

    def interrupt(self, now: float, reason: str) -> None:
        """End the run at the user's request; the first interrupt starts the timeout."""
        self.decide("stopped")
        if self._interrupted_at is None:
            self._interrupted_at, self.reason = now, reason

    def interrupt_expired(self, now: float) -> bool:
        """Whether the timeout for leases in flight at the interrupt has passed."""
        interrupted = self._interrupted_at
        return interrupted is not None and now - interrupted > INTERRUPT_TIMEOUT_S

    def set_missing_parts(self, parts: Iterable[int], now: float) -> None:
        """No attached worker holds `parts` of the data, which are needed at `now`."""
        self._missing_since = {part: self._missing_since.get(part, now) for part in parts}

    def missing_workers(self, now: float) -> str | None:
        """Why the run fails for lack of workers; None if it does not."""
        waited = now - self.no_workers_since if self.no_workers_since is not None else 0.0
        if waited > self.stopping.wait_for_workers:
            return f"no worker for {waited:.0f} s"
        for part, since in self._missing_since.items():
            if now - since > self.stopping.wait_for_workers:
                name = self.part_names[part] if self.part_names else f"part {part} of the data"
                return f"no server has had {name} for {now - since:.0f} s"
        return None

    def skip(self, seconds: float) -> None:
        """Leave out `seconds` in which the coordinator's process was stopped."""
        if self.no_workers_since is not None:
            self.no_workers_since += seconds
        self._missing_since = {part: since + seconds for part, since in self._missing_since.items()}
