"""An audit of "every row exactly once": independent bookkeeping, compared with that of a run.

It is derived from messages and commands only. Simulated runs with faults and the property test of
the coordinator use it.
"""

import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from hogbatch.config.sets import SetName
from hogbatch.coordinator.commands import (
    Command,
    Finish,
    Kill,
    Quarantine,
    Record,
    Report,
    Revoke,
    RollBack,
    Send,
    Snapshot,
)
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.saved_state import MAX_ROLLBACKS, SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.coordinator.worker import Worker
from hogbatch.events import event as events
from hogbatch.wire.messages import Done, Hello, Lease, Refused, Stop, ToCoordinator, Welcome
from tests.support.row_invariants import check_rows

if TYPE_CHECKING:
    from tests.simulation.unreliable import Unreliable

STARVED_S = 1.0  # maximum time without work while there are rows

Rows = tuple[int, int]


class InvariantViolation(AssertionError):
    """The run has violated an invariant."""


def check(holds: bool, otherwise: str) -> None:
    """Raise InvariantViolation with the text `otherwise` unless the invariant `holds`."""
    if not holds:
        raise InvariantViolation(otherwise)


class HeldRows(NamedTuple):
    """Rows that a worker holds."""

    key: str
    pid: int
    lease: Lease


@dataclass(slots=True)
class Audit:
    """Raises :class:`InvariantViolation` when a row is lost or done twice, or could be."""

    plan: Plan
    epoch: int = 0
    rows: int = 0  # trained on
    done: list[Rows] = field(default_factory=list)  # of the current epoch, with quarantined ones
    evaluated: list[Rows] = field(default_factory=list)
    finish: Finish | None = None
    _held: dict[int, HeldRows] = field(default_factory=dict)  # by lease
    _order: list[tuple[int, int]] = field(default_factory=list)  # (start, lease) of those held
    _revoked: list[HeldRows] = field(default_factory=list)  # their workers may still write
    quarantined: int = 0  # rows
    _epoch_rows: int = -1  # of the current epoch
    _keys: dict[int, str] = field(default_factory=dict)  # by number, of those attached
    _pids: dict[str, int] = field(default_factory=dict)  # by key
    _parts: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of divided data, by key
    _limits: dict[str, tuple[int, int]] = field(default_factory=dict)  # by worker's name
    _names: dict[str, str] = field(default_factory=dict)  # key → name
    _idle_since: dict[str, float] = field(default_factory=dict)
    _free_since: float = math.inf
    _saves: list[tuple[SavedState, list[Rows]]] = field(default_factory=list)  # each with `done`

    def __post_init__(self) -> None:
        self._epoch_rows = self.plan.train_rows

    # Messages -------------------------------------------------------------------------------

    def received(self, key: str, message: ToCoordinator) -> None:
        """Worker `key` has sent `message`, which the coordinator is about to handle."""
        if isinstance(message, Hello):
            self._pids[key], self._parts[key] = message.pid, message.parts
        if not isinstance(message, Done):
            return
        hold = self._held.get(message.lease)
        if hold is None or hold.key != key:
            return
        lease = hold.lease
        size = lease.stop - lease.start
        useless = min(message.too_large, lease.batch_size) == 1  # has no memory for a single row
        whole, cut = message.rows == size, message.rows < size and message.too_large
        if (whole or cut) and not useless:
            self._release(message.lease)
            if lease.task != "train" and message.rows:
                self.evaluated.append((lease.start, lease.start + message.rows))

    def commanded(self, command: Command, world: "Unreliable") -> None:
        """The coordinator has returned `command`, which is about to be carried out."""
        check(self.finish is None or _harmless(command), f"{command} after the end")
        match command:
            case Send(key, Welcome() as welcome):
                check(welcome.worker not in self._keys, f"fence {welcome.worker} assigned twice")
                self._keys[welcome.worker] = key
                self._names[key] = welcome.name
            case Send(key, Lease() as lease):
                self._hand_out(key, lease, world)
            case Send(key, message):
                known = key in self._keys.values() or isinstance(message, Stop)
                check(known or key not in world.state.workers, f"{message} to {key}")
            case Revoke(number):
                self._take_back(number)
            case Kill(pid):  # it writes no more
                self._revoked = [revoked for revoked in self._revoked if revoked.pid != pid]
            case Record(event):
                self._note(event)
            case Quarantine(epoch, start, stop):
                check(epoch == self.epoch, f"rows of epoch {epoch} quarantined")
                self.done.append((start, stop))
                self.quarantined += stop - start
            case Report(evaluation):
                self._check_evaluated("validation")
                check(evaluation.rows == self.rows, f"{evaluation.rows} rows, not {self.rows}")
            case RollBack():
                check(not self._held, "rolled back while workers write")
            case Snapshot(SavedState() as saved):
                self._save(saved)
            case Finish():
                self.finish = command

    def _hand_out(self, key: str, lease: Lease, world: "Unreliable") -> None:
        if not world.reachable(key):  # it has just died; all its rows will be taken back
            return
        number = next((n for n, held_by in self._keys.items() if held_by == key), None)
        check(number is not None, f"{lease} to {key}, which is not attached")
        check(lease.fence == world.fence(number or 0), f"{lease} has another fence value")
        rows = self.plan.rows_of(lease.task)
        check(0 <= lease.start < lease.stop <= rows, f"{lease} is out of bounds")
        self._check_parts(key, lease)
        smallest, largest = self._limits[self._names[key]]
        if lease.task == "train":
            check(lease.epoch == self.epoch, f"{lease} is of another epoch")
            check(smallest <= lease.batch_size <= largest, f"{lease} is beyond the limits")
            leased = lease.stop - lease.start
            whole = leased % lease.batch_size == 0 or leased < lease.batch_size
            check(whole, f"{lease} has batches of different sizes")
            usual = self.plan.learning_rate.at(min(lease.batch_size, leased), lease.epoch)
            halved = [usual / 2**times for times in range(MAX_ROLLBACKS + 1)]
            check(lease.learning_rate in halved, f"{lease} has another learning rate than {usual}")
        hold = HeldRows(key, self._pids[key], lease)
        if other := next(iter(self._held.values()), None):  # all have one task
            check(lease.task == other.lease.task, f"{lease} while others {other.lease.task}")
        index = bisect_left(self._order, (lease.start, 0))
        for _, near in self._order[max(0, index - 1) : index + 1]:
            held = self._held[near]
            check(not _overlap(lease, held.lease), f"{lease} overlaps {held}")
        self._revoked = [revoked for revoked in self._revoked if world.reachable(revoked.key)]
        for revoked in self._revoked:
            check(not _overlap(lease, revoked.lease), f"{lease}: {revoked} may still be written")
        self._held[lease.number] = hold
        check(lease.task != "train" or self._rows_left >= 0, f"{lease} exceeds the rows of the run")
        insort(self._order, (lease.start, lease.number))

    @property
    def _rows_left(self) -> float:
        """Rows that may still be handed out, if the run has a maximum number of rows."""
        if (limit := self.plan.stopping.max_rows) is None:
            return math.inf
        held = (hold.lease for hold in self._held.values() if hold.lease.task == "train")
        return limit - self.rows - sum(lease.stop - lease.start for lease in held)

    def _check_parts(self, key: str, lease: Lease) -> None:
        """Check that the rows of divided data are of one part, which the server has."""
        parts = self.plan.parts_of(lease.task)
        if parts:
            part = bisect_right(ends := list(accumulate(parts)), lease.start)
            check(lease.stop <= ends[part], f"{lease} has rows of several parts")
            check(part in self._parts[key], f"{lease}: {key} has not part {part}")

    def _take_back(self, number: int) -> None:
        check(number in self._keys, f"fence {number} is raised, but no worker has it")
        key = self._keys.pop(number)
        for lease in [lease for lease, hold in self._held.items() if hold.key == key]:
            self._revoked.append(self._release(lease))

    def _release(self, lease: int) -> HeldRows:
        hold = self._held.pop(lease)
        del self._order[bisect_left(self._order, (hold.lease.start, lease))]
        return hold

    # Records --------------------------------------------------------------------------------

    def _note(self, event: events.AnyEvent) -> None:
        match event:
            case events.WorkerReady(worker=name, limits=limits):
                self._limits[name] = limits
            case events.OutOfMemory(worker=name, too_large=size, batch_size=smaller):
                check(smaller < size, f"{name} went from {size} to {smaller} rows")
                self._limits[name] = (1, min(self._limits[name][1], size - 1))
            case events.LeaseDone(rows=[start, stop], epoch=epoch):
                check(epoch == self.epoch, f"a lease of epoch {epoch} in epoch {self.epoch}")
                self.done.append((start, stop))
                self.rows += stop - start
            case events.WorkerLeft(reissued=spans) if self.plan.merging is not None:
                self._discard([(start, stop) for start, stop in spans])
            case events.EvaluationBegins():  # again, if servers were lost meanwhile
                self.evaluated.clear()
            case events.Tested():
                self._check_evaluated("test")
            case events.EpochEnded(epoch, rows):
                check(epoch == self.epoch, f"the end of epoch {epoch} in epoch {self.epoch}")
                check(_tile(self.done, rows), f"epoch {epoch} of {rows} rows: {sorted(self.done)}")
                check(rows == self._epoch_rows, f"epoch {epoch} has {rows} rows")
                self.done.clear()
                self.epoch += 1
                excluded = 0 if self.plan.merging is not None else self.quarantined
                self._epoch_rows = self.plan.train_rows - excluded

    def _check_evaluated(self, name: SetName) -> None:
        rows = self.plan.rows_of(name)
        check(_tile(self.evaluated, rows), f"{name} rows done: {self.evaluated}")
        self.evaluated.clear()

    def _discard(self, spans: list[Rows]) -> None:
        """A server has left: the rows that it has trained on but not merged are not done."""
        for span in spans:
            if span in self.done:  # else it held them
                self.done.remove(span)
                self.rows -= span[1] - span[0]

    # Checkpoints ----------------------------------------------------------------------------

    def _save(self, saved: SavedState) -> None:
        todo = [(span[0], span[1]) for span in saved.todo]
        check(saved.epoch == self.epoch, f"epoch {saved.epoch} is saved, not {self.epoch}")
        check(
            saved.epoch_rows == self._epoch_rows, f"{saved.epoch_rows} rows of an epoch are saved"
        )
        complete = _tile([*self.done, *todo], saved.epoch_rows)
        check(complete, f"the saved rows {todo} and those done {self.done} are not the epoch")
        check(saved.rows == self.rows, f"{saved.rows} rows are saved, not {self.rows}")
        self._saves.append((saved, list(self.done)))

    def resume(self, saved: SavedState | None) -> None:
        """A new coordinator continues from `saved`, or from the start."""
        found = (done for each, done in self._saves if each is saved)
        self.epoch, self.rows = (saved.epoch, saved.rows) if saved is not None else (0, 0)
        self.done = list(next(found, []))
        self.quarantined = saved.quarantined if saved is not None else 0
        self._epoch_rows = saved.epoch_rows if saved is not None else self.plan.train_rows
        for spans in (self.evaluated, self._order, self._revoked):
            spans.clear()
        for table in (self._held, self._keys, self._pids, self._parts, self._limits, self._names):
            table.clear()
        self._idle_since.clear()
        self._free_since = math.inf

    # Time -----------------------------------------------------------------------------------

    def check(self, state: Coordinator, now: float) -> None:
        """Check the state's invariants, and that no worker waits for work while there is some."""
        check_rows(state)
        may_train = state.phase == "train" and state.epochs.ready and self._rows_left > 0
        free = may_train and bool(state.epochs.rows.remaining)
        self._free_since = min(self._free_since, now) if free else math.inf
        ready = [worker for worker in state.workers.values() if worker.ready]
        check(not ready or any(w.trains for w in ready), "all workers are parked")
        rows = state.epochs.rows
        waiting = [worker for worker in ready if worker.trains and not worker.leases]
        idle = {worker.key: worker for worker in waiting if rows.left(worker.parts)}
        self._idle_since = {key: self._idle_since.get(key, now) for key in idle}
        for key, worker in idle.items():
            batch = worker.batch_size * worker.speed.value
            patience = max(STARVED_S, 2 * batch) if batch > 0 else STARVED_S
            if _would_delay(state, worker):
                self._idle_since[key] = now  # faster workers take the rows, or are lost
            waited = now - max(self._idle_since[key], self._free_since)
            check(waited <= patience, f"{worker.name} had no work for {waited:.1f} s")


def _would_delay(state: Coordinator, worker: Worker) -> bool:
    """Whether other workers would finish the rows that `worker` can get before it does a batch."""
    rows = state.epochs.rows
    if not rows.divided:
        return state.roster.would_delay(worker, rows.remaining)
    part, left = rows.next_part(worker.parts), rows.left(worker.parts)
    return part is not None and state.roster.would_delay(worker, left, part.number)


def _harmless(command: Command) -> bool:
    """Whether a finished run may return `command`: no rows, results or model changes."""
    if isinstance(command, Send):
        return isinstance(command.message, Stop | Refused)
    return isinstance(command, Record | Revoke | Kill)


def _overlap(one: Lease, other: Lease) -> bool:
    return one.task == other.task and one.start < other.stop and other.start < one.stop


def _tile(parts: list[Rows], rows: int) -> bool:
    """Whether `parts` cover [0, rows), each row exactly once."""
    ordered = sorted(parts)
    ends = [0, *(stop for _, stop in ordered)]
    starts = [*(start for start, _ in ordered), rows]
    return ends == starts
