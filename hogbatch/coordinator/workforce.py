"""The common part of :class:`hogbatch.coordinator.state.Coordinator` and
:class:`hogbatch.cluster.supplied.SuppliedCoordinator`: it admits workers, accounts for their leases
and removes workers that are lost.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import structs

from hogbatch.coordinator.commands import Command, Finish, Kill, Record, Revoke, Send
from hogbatch.coordinator.decisions import Decisions
from hogbatch.coordinator.ending import Ending
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.leases import LeaseAccounting, Leases
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import Worker
from hogbatch.events import event as events
from hogbatch.events.event import WorkerCompiles, WorkerJoined, WorkerLost
from hogbatch.events.records import Faults, RunTotals
from hogbatch.policy.base import BatchPolicy
from hogbatch.store.fence import MAX_WORKERS
from hogbatch.wire import messages

Phase = Literal["waiting", "train", "drain", "inspect", "evaluate", "test", "finished"]

CHECK_INTERVAL_S = 0.05  # between two checks of all workers
TICK_S = 0.05  # between two calls of `tick`, at most
MAX_TICK_GAP_S = 2.0  # a longer gap between two ticks means that this process was stopped


@dataclass(slots=True)
class Workforce(ABC):
    """The workers of a coordinator. Every public method takes an event and returns commands."""

    plan: Plan
    policy: BatchPolicy
    phase: Phase = "waiting"
    roster: Roster = field(init=False)
    progress: Progress = field(init=False)
    recovery: Recovery = field(init=False)
    epochs: Epochs = field(init=False)
    leases: Leases = field(init=False)
    ending: Ending = field(init=False)
    accounting: LeaseAccounting = field(init=False)
    decisions: Decisions = field(init=False)
    _ticked: float | None = field(init=False, default=None)
    _next_check: float = field(init=False, default=-math.inf)

    def __post_init__(self) -> None:
        """Set up the parts of every coordinator; subclasses add others."""
        plan = self.plan
        progress = self.progress = Progress(plan)
        recovery = self.recovery = Recovery(plan.checkpoint_seconds)
        roster = self.roster = Roster(plan.beta)
        epochs = self.epochs = self._new_epochs()
        leases = self.leases = Leases(plan, roster, epochs, recovery, progress)
        self.ending = Ending(plan.stopping, progress, plan.part_names)
        self.accounting = LeaseAccounting(epochs, leases, progress, recovery)
        self.decisions = Decisions(self.policy, roster)

    def _new_epochs(self) -> Epochs:
        plan = self.plan
        parts = plan.parts_of("train")
        return Epochs(plan.train_rows, parts, all_rows=plan.merging is not None)

    # Decided by subclasses --------------------------------------------------------------------

    @abstractmethod
    def interrupt(self, now: float, reason: str = "interrupted") -> list[Command]:
        """End the run at the user's request."""

    @abstractmethod
    def _advance(self, now: float, to: Sequence[Worker] | None = None) -> list[Command]:
        """Do everything that is possible now, then hand out leases to `to`, or to all workers."""

    @abstractmethod
    def abandon(self, reason: str, now: float) -> list[Command]:
        """End the run now, as failed."""

    @abstractmethod
    def _check_deadlines(self, now: float) -> list[Command]:
        """Check what is due at `now`, besides the deadlines of workers."""

    def _credited(
        self, worker: Worker, lease: messages.Lease, done: messages.Done
    ) -> list[Command]:
        """The commands after a lease that `worker` has done, besides its accounting."""
        return []

    def _removed(self, worker: Worker, returned: Sequence[Command], now: float) -> list[Command]:
        """The commands after the removal of a worker, besides those `returned` for its leases."""
        return []

    def _make_ready(self, worker: Worker, ready: messages.Ready, now: float) -> list[Command]:
        """Worker `worker` is ready for leases."""
        return self._prepare(worker, ready, now)

    def _from_server(
        self, worker: Worker, message: messages.FromServer | messages.ServerWorkers, now: float
    ) -> list[Command]:
        """Handle a message about merges of servers or about their workers, if `worker` is one."""
        return self._refuse_message()

    # Events -----------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Command]:
        """Start waiting for workers."""
        self.ending.no_workers_since = now
        return []

    @property
    def finished(self) -> bool:
        return self.phase == "finished"

    def order_ready(self, epoch: int, without: int, now: float) -> list[Command]:
        """The order of `epoch` is written, with the first `without` quarantined rows excluded."""
        self.epochs.order_ready(epoch, without)
        return self._advance(now)

    @property
    def workers(self) -> dict[str, Worker]:
        return self.roster.attached

    def receive(self, key: str, message: messages.ToCoordinator, now: float) -> list[Command]:
        """Handle one message from worker `key`."""
        if isinstance(message, messages.Hello):
            return self._admit(key, message, now)
        worker = self.workers.get(key)
        if worker is None:  # it counts as lost, and its rows were reassigned
            return [Send(key, messages.Stop())]
        worker.last_seen = now
        match message:
            case messages.Ready() as ready:
                return self._make_ready(worker, ready, now)
            case messages.Done():
                return self._credit(worker, message, now)
            case messages.Heartbeat() if worker.starts_compiling(message):
                return [Record(WorkerCompiles(worker.name))]
            case messages.Heartbeat():
                return []
            case messages.Failed(reason):  # a failing device is not the fault of its rows
                died = worker.device == "cpu"
                return self.lose(key, reason, now, died, kill=False)
            case messages.Goodbye():
                goodbye = Record(events.Goodbye(worker.name))
                return [goodbye, *self._remove(worker, now)]
            case _:
                return self._from_server(worker, message, now)

    def lose(
        self, key: str, reason: str, now: float, died: bool = True, *, kill: bool = True
    ) -> list[Command]:
        """Worker `key` is gone or unusable; its rows are reassigned.

        `died`: its rows may have killed it. `kill`: its process may still run and is killed first.
        """
        worker = self.workers.get(key)
        if worker is None:
            return []
        self.accounting.faults["workers_lost"] += 1
        worker.lost_because, lost = reason, Record(WorkerLost(worker.name, reason))
        died = died and worker.device != "server"  # rows kill workers of a server, not the server
        return [lost, *self._remove(worker, now, died=died, kill=kill)]

    def tick(self, now: float) -> list[Command]:
        """Handle the passing of time; called several times a second."""
        if self._ticked is not None and now - self._ticked > MAX_TICK_GAP_S:
            stopped = now - self._ticked  # seconds in which it received nothing
            self.progress.clock.skip(stopped, now)
            self.ending.skip(stopped)
            self.roster.extend_deadlines(stopped)
        self._ticked = now
        if now < self._next_check:
            return self._advance(now, [])
        self._next_check = now + CHECK_INTERVAL_S
        commands = self._check_deadlines(now)
        for worker, reason in self.roster.unresponsive(now):
            commands += self.lose(worker.key, reason, now)
        if (missing := self.ending.missing_workers(now)) and not self.finished:
            return commands + self.abandon(missing, now)
        return commands + self._advance(now)

    def until_tick(self, now: float) -> float:
        """Seconds until `tick` is to be called, if nothing else happens before."""
        return TICK_S

    def totals(self, now: float) -> RunTotals:
        seconds = self.progress.seconds(now)
        return RunTotals(
            seconds=seconds,
            epochs=self.progress.epochs,
            rows=self.progress.rows,
            workers=self.roster.records(seconds),
            faults=Faults(**self.accounting.faults),
        )

    def _finish(self, end: Finish, now: float) -> list[Command]:
        """Stop all workers and end the run, unless it has ended."""
        if self.finished:
            return []
        self.progress.clock.pause(now)
        self.phase = "finished"
        self.ending.status = end.status
        return [*(Send(key, messages.Stop()) for key in self.workers), end]

    # Workers ----------------------------------------------------------------------------------

    def _admit(self, key: str, hello: messages.Hello, now: float) -> list[Command]:
        if key in self.workers:
            lost = self.lose(key, "sent Hello twice", now, died=False)
            return lost + self._admit(key, hello, now)
        if reason := self._refusal(hello):
            return [Send(key, messages.Refused(reason))]
        if self.finished:
            return [Send(key, messages.Stop())]
        worker = self.roster.admit(key, hello, now)
        self.ending.no_workers_since = None
        own = {"worker": worker.number, "name": worker.name, "beat_seconds": worker.beat_seconds}
        welcome = structs.replace(self.plan.training, **own)
        joined = WorkerJoined(worker.name, hello.name, worker.pid)
        return [Send(key, welcome), Record(joined)]

    def _refusal(self, hello: messages.Hello) -> str | None:
        """Why the worker that sent `hello` cannot be admitted; None if it can."""
        plan = self.plan
        if (hello.device == "server") != (plan.merging is not None):
            expected = "a worker" if plan.merging is None else "a server"
            return f"expected {expected} of this run; got {hello.name}, which is another kind"
        if wrong := plan.identity.mismatch(hello):
            return wrong
        full = len(self.workers) >= MAX_WORKERS
        return f"this run has {MAX_WORKERS} workers, which is the maximum" if full else None

    def _refuse_message(self) -> list[Command]:
        self.accounting.faults["messages_refused"] += 1
        return []

    def _prepare(self, worker: Worker, ready: messages.Ready, now: float) -> list[Command]:
        """Give leases to `worker` from now on, unless its figures are impossible."""
        if reason := worker.prepare(ready, self.plan.limits, self.plan.train_rows):
            return self.lose(worker.key, reason, now)
        self.roster.make_ready(worker, now)
        worker.joined_at = self.progress.seconds(now)
        worker.update_credit = self.roster.initial_credit(worker)
        worker.resize(self.decisions.first_size(worker), worker.joined_at)
        worker.expect_measured_speed()
        self.progress.expect_speed(worker.speed.value)
        decided = self.decisions.workers_changed(worker.joined_at)
        made_ready = Record(worker.ready_event())
        return [made_ready, *decided, *self._advance(now, [worker])]

    def _remove(
        self, worker: Worker, now: float, *, died: bool = False, kill: bool = False
    ) -> list[Command]:
        """Remove a worker that has left or is lost; its leases are taken back."""
        killed = [Kill(worker.pid)] if kill else []
        returned, seconds = self.accounting.take_back(worker, died), self.progress.seconds(now)
        self.roster.remove(worker, seconds)
        decided = self.decisions.workers_changed(seconds)
        if not self.workers:
            self.ending.no_workers_since = now
        removed = [Revoke(worker.number), *killed, *returned, *decided]
        return [*removed, *self._removed(worker, returned, now), *self._advance(now)]

    def _credit(self, worker: Worker, done: messages.Done, now: float) -> list[Command]:
        held = worker.leases.pop(done.lease, None)
        if held is None:  # reported twice, or never handed out
            return self._refuse_message()
        if error := held.error_in(done):
            worker.leases[done.lease] = held
            return self.lose(worker.key, error, now, died=False)
        lease = held.lease
        seconds = self.progress.seconds(now)
        decide = self.decisions.workers_changed if worker.is_new_gpu else self.decisions.review
        commands: list[Command] = [*self.accounting.credit(worker, lease, done, seconds)]
        if lease.task == "train" and not done.too_large:
            self.decisions.resize(worker, seconds)
            commands += decide(seconds)
        commands += self._credited(worker, lease, done)
        # Other workers may take the rest of a lease, or may have waited for a parked one.
        parked = lease.task == "train" and not worker.trains
        alone = done.rows == lease.stop - lease.start and not parked
        return [*commands, *self._advance(now, [worker] if alone else None)]
