"""Workers that join, become ready and leave; no other decisions are made here."""

from dataclasses import dataclass

from hogbatch.coordinator.accounting import LeaseAccounting
from hogbatch.coordinator.commands import Command, Kill, Record, Revoke, Send
from hogbatch.coordinator.decisions import Decisions
from hogbatch.coordinator.ending import Ending
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import Worker
from hogbatch.wire.messages import Hello


@dataclass(slots=True)
class Membership:
    """Admits and removes workers. The caller hands out leases afterwards."""

    plan: Plan
    roster: Roster
    progress: Progress
    ending: Ending
    accounting: LeaseAccounting
    decisions: Decisions

    def refusal(self, hello: Hello) -> str | None:
        """Why the worker that sent `hello` cannot be admitted; None if it can."""
        if (hello.device == "server") != (self.plan.merging is not None):
            expected = "a worker" if self.plan.merging is None else "a server"
            return f"expected {expected} of this run; got {hello.name}, which is another kind"
        wrong = self.plan.identity.mismatch(hello) or self.plan.wrong_parts(hello)
        return wrong or self.roster.why_full()

    def admit(self, key: str, hello: Hello, now: float) -> list[Command]:
        """Admit the worker `key`, which sent `hello`."""
        worker = self.roster.admit(key, hello, now)
        self.ending.workers_attached()
        run = self.plan.identity.run
        beat = worker.beat_seconds
        welcome = self.plan.training.welcome(run, worker.number, worker.name, beat)
        joined = {"worker": worker.name, "runs_on": hello.name, "pid": worker.pid}
        return [Send(key, welcome), Record("worker_joined", joined)]

    def make_ready(self, worker: Worker, now: float) -> list[Command]:
        """Set the first batch size of a worker whose limits are known; it can be given work."""
        self.roster.make_ready(worker, now)
        worker.joined_at = self.progress.seconds(now)
        worker.update_credit = self.roster.initial_credit(worker)
        worker.resize(self.decisions.first_size(worker), worker.joined_at)
        worker.expect_measured_speed()
        self.progress.expect_speed(worker.speed.value)
        decided = self.decisions.membership_changed(worker.joined_at)
        return [Record("worker_ready", worker.ready_fields()), *decided]

    def leave(self, worker: Worker, now: float) -> list[Command]:
        """Remove a worker that says Goodbye; its leases are taken back."""
        goodbye = Record("goodbye", {"worker": worker.name})
        return [goodbye, Revoke(worker.number), *self._remove(worker, now, died=False)]

    def lose(
        self, worker: Worker, reason: str, now: float, *, died: bool, kill: bool
    ) -> list[Command]:
        """Remove a worker that failed; its leases are taken back.

        `died`: its rows may have killed it. `kill`: its process may still run and is killed first.
        """
        self.accounting.faults["workers_lost"] += 1
        lost = Record("worker_lost", {"worker": worker.name, "reason": reason})
        killed = [Kill(worker.pid)] if kill else []
        died = died and worker.device != "server"  # rows kill workers of a server, not the server
        return [lost, Revoke(worker.number), *killed, *self._remove(worker, now, died)]

    def _remove(self, worker: Worker, now: float, died: bool) -> list[Command]:
        commands, seconds = self.accounting.take_back(worker, died), self.progress.seconds(now)
        self.roster.remove(worker, seconds)
        commands += self.decisions.membership_changed(seconds)
        if not self.roster.attached:
            self.ending.no_workers(now)
        return commands
