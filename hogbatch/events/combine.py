"""The events that a log has: frequent ones are combined, so that it grows by 2 MB an hour at most.

There is no interval: an event is written at once while there is room, and later together with what
was held back. The room grows with the time, and what is written takes it, so that events of many
workers and of epochs of milliseconds are written less often.
"""

from typing import Any, Final

from msgspec import structs

from hogbatch.events.event import (
    AnyEvent,
    CheckpointBegins,
    Ended,
    EpochEnded,
    Evaluation,
    EvaluationBegins,
    LeaseDone,
    LeasesDone,
    Resumed,
    ServersMerged,
    Started,
    WorkerParked,
    WorkersOfServer,
    WorkerUnparked,
)
from hogbatch.events.records import rank

BYTES_PER_S: Final = 400  # 1.4 MB an hour; the last events and states may come on top of it
BURST: Final = 80_000  # bytes that may be written at once
BEST: Final = ("best evaluation", "")

Key = tuple[str, str]  # kind of event, and worker


class Combiner:
    """Decides when the events of one log are written.

    Of those that are held back, there is one of each kind and worker: the last one, for leases and
    merges with the sums over all. Of evaluations, there is also the best one.
    """

    def __init__(self, burst: float = BURST) -> None:
        """With an infinite `burst`, nothing is held back."""
        self._burst = self.room = burst  # bytes; what is written is subtracted from the room
        self._at = 0.0
        self._held: dict[Key, AnyEvent] = {}  # in the order of their last change
        self._started: Started | None = None

    def add(self, event: AnyEvent) -> list[AnyEvent]:
        """Take the next event; return those that are written now."""
        if (key := _key(event)) is not None:
            self._hold(key, event)
            return self.due(event.at)
        if isinstance(event, Started):
            self._started = event
        # All rows until a checkpoint are before it, unless there are so many workers that each
        # checkpoint takes much more room than there is.
        checkpoint = isinstance(event, CheckpointBegins) and self.room > -self._burst
        if checkpoint or isinstance(event, Started | Resumed | Ended):
            return [*self.rest(), event]
        worker = getattr(event, "worker", None)
        return [*(self._held.pop(key) for key in list(self._held) if key[1] == worker), event]

    def due(self, at: float) -> list[AnyEvent]:
        """The events that were held back, if there is room at this time."""
        self.room = min(self._burst, self.room + BYTES_PER_S * max(0.0, at - self._at))
        self._at = at
        return self.rest() if self.room > 0 else []

    def rest(self) -> list[AnyEvent]:
        """All events that were held back."""
        events, self._held = list(self._held.values()), {}
        return events

    def _hold(self, key: Key, event: AnyEvent) -> None:
        earlier = self._held.pop(key, None)
        match earlier, event:
            case LeaseDone() | LeasesDone(), LeaseDone():
                event = _sum_of_leases(earlier, event)
            case ServersMerged(), ServersMerged():
                names = "rows", "merge_seconds", "busy_seconds"
                sums = {name: getattr(earlier, name) + getattr(event, name) for name in names}
                event = structs.replace(event, **sums)
            case Evaluation(), Evaluation():
                self._keep_best(earlier, event)
        self._held[key] = event

    def _keep_best(self, earlier: Evaluation, event: Evaluation) -> None:
        """Keep the best evaluation so far, unless that is the last one."""

        def by_rank(evaluation: Evaluation) -> float:
            return rank(evaluation, self._started.metric if self._started else None)

        best = self._held.pop(BEST, earlier)
        assert isinstance(best, Evaluation)
        best = min(best, earlier, key=by_rank)
        if by_rank(best) <= by_rank(event):
            self._held[BEST] = best


def _key(event: AnyEvent) -> Key | None:
    """The kind of an event that may be held back, and its worker; None for other events."""
    match event:
        case LeaseDone(worker=worker) | WorkersOfServer(worker):
            return event.name, worker
        case WorkerParked(worker) | WorkerUnparked(worker):
            return "parked", worker
        case EpochEnded() | EvaluationBegins() | Evaluation() | ServersMerged():
            return event.name, ""
    return None


def _sum_of_leases(earlier: LeaseDone | LeasesDone, lease: LeaseDone) -> LeasesDone:
    """Leases of one worker as one event."""
    updates, staleness = earlier.updates + lease.updates, None
    if earlier.staleness is not None and lease.staleness is not None:
        missed = earlier.staleness * earlier.updates + lease.staleness * lease.updates
        staleness = round(missed / max(1, updates), 4)
    summed = "merge_seconds", "transferred", "transfer_seconds", "busy_seconds"
    sums = {name: _sum(getattr(earlier, name), getattr(lease, name)) for name in summed}
    sums |= {"rows": earlier.row_count + lease.row_count, "updates": updates}
    leases = (earlier.leases if isinstance(earlier, LeasesDone) else 1) + 1
    fields = structs.asdict(lease) | sums | {"staleness": staleness}
    return LeasesDone(leases=leases, **fields)


def _sum(one: float | None, other: float | None) -> Any:
    return other if one is None or other is None else round(one + other, 6)
