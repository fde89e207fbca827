"""The coordinator of one of several servers: another coordinator decides which rows it trains on.

For the coordinator of all servers, a server is a worker. It is given leases of many rows, which
:class:`SuppliedCoordinator` divides among its own workers. What else is decided for all servers,
such as epochs, evaluations, merges and the end, it only carries out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hogbatch.cluster.server_figures import FIGURES_PER_S, figures_of
from hogbatch.config.sets import SET_NAMES, SetName
from hogbatch.coordinator.commands import Answer, Command, Finish, MergeStep, Quarantine
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.ledger import Ledger
from hogbatch.coordinator.progress import LossSums
from hogbatch.coordinator.worker import Worker
from hogbatch.coordinator.workforce import Workforce
from hogbatch.policy.limits import peak_speed
from hogbatch.wire.messages import (
    Done,
    Failed,
    Heartbeat,
    Lease,
    Loaded,
    Ready,
    Refused,
    ServerWorkers,
    Stop,
    ToCoordinator,
    ToWorker,
    UseMean,
    UseModel,
    Welcome,
)

BEAT_S: Final = 1.0  # between two heartbeats to the coordinator of all servers


@dataclass(slots=True)
class SuppliedLease:
    """One lease, and the sums over those of its rows that are done."""

    lease: Lease
    since: float  # by the caller's clock: given, or the lease before it done
    rows: int = 0
    updates: int = 0
    active: float = 0.0  # summed over updates
    sums: LossSums = field(default_factory=LossSums)

    def add(self, done: Done) -> None:
        self.rows += done.rows
        self.updates += done.updates
        self.active += done.active * done.updates
        self.sums.add(done)

    def done(self, now: float) -> Done:
        return Done(
            lease=self.lease.number,
            rows=self.rows,
            updates=self.updates,
            seconds=max(0.0, now - self.since),
            loss=self.sums.loss,
            skipped=self.sums.skipped,
            metric_sums=tuple(self.sums.metric_sums),
            active=self.active / self.updates if self.updates else 0.0,
            skipped_row=self.sums.skipped_row,
            extra_weight=self.sums.extra_weight,
        )


@dataclass(slots=True)
class Supply:
    """The leases that are not done; their ranges of rows do not overlap within a task."""

    trained: int = 0  # training leases that are done
    _leases: dict[SetName, list[SuppliedLease]] = field(
        default_factory=lambda: {name: [] for name in SET_NAMES}
    )

    def add(self, lease: Lease, now: float) -> None:
        self._leases[lease.task].append(SuppliedLease(lease, now))

    def exclude(self, excluded: Quarantine, now: float) -> list[Done]:
        """Count training rows that are excluded, because they kill workers, as skipped."""
        rows = excluded.stop - excluded.start
        none = Done(0, rows, updates=0, seconds=0.0, loss=0.0, skipped=rows, metric_sums=())
        return self.credit("train", excluded.start, none, now)

    def credit(self, task: SetName, start: int, done: Done, now: float) -> list[Done]:
        """Add what a worker has done from row `start` on; return the message of a complete lease.

        The rows are those of one lease.
        """
        found = (each for each in self._leases[task] if each.lease.start <= start < each.lease.stop)
        supplied = next(found)
        supplied.add(done)
        if supplied.rows < supplied.lease.stop - supplied.lease.start:
            return []
        leases = self._leases[task]
        leases.remove(supplied)
        if task == "train":
            self.trained += 1
        for other in leases:  # the workers begin with it only now
            other.since = max(other.since, now)
        return [supplied.done(now)]


@dataclass(slots=True)
class SuppliedEpochs(Epochs):
    """Epochs whose rows are added as they are supplied.

    All servers train in the same order of the rows, so rows that kill workers stay in it, and are
    excluded again in the next epoch.
    """

    def __post_init__(self) -> None:
        self.rows = Ledger(0, grows=True)
        self.number = -1  # until rows of an epoch are supplied

    def supply(self, epoch: int, start: int, stop: int) -> list[Command]:
        """Add rows [start, stop) of the order of `epoch`; the epochs before it are finished."""
        commands: list[Command] = []
        if epoch != self.number:
            self.number, self.rows = epoch, Ledger(0, grows=True)
            self._ready = {each: 0 for each in self._ready if each == epoch}
            self._requested = {each: 0 for each in self._requested if each == epoch}
            commands = [*self._request(epoch, 0), *self._request(epoch + 1, 0)]
        self.rows.extend(start, stop)
        return commands

    @property
    def ready(self) -> bool:
        return self.number in self._ready


@dataclass(slots=True)
class SuppliedCoordinator(Workforce):
    """The state of one of several servers. Every public method takes an event and returns commands.

    `address` is where other servers write to the memory of this one, through `plane`; `servers` is
    the number of servers of the run.
    """

    epochs: SuppliedEpochs = field(init=False)
    address: bytes = b""
    plane: str | None = None
    servers: int = 1
    supply: Supply = field(default_factory=Supply)
    _exchanges: int = 0  # under way
    _loads: int = 0  # of these
    _beat_at: float = -math.inf
    _figures: ServerWorkers = field(default_factory=ServerWorkers)  # as sent the last time
    _figures_due: float = -math.inf  # when others may be sent

    def __post_init__(self) -> None:
        Workforce.__post_init__(self)
        self.leases.evaluated.grows = True

    def _new_epochs(self) -> SuppliedEpochs:
        return SuppliedEpochs(self.plan.train_rows)

    # Events -----------------------------------------------------------------------------------

    def order(self, message: ToWorker, now: float) -> list[Command]:
        """Carry out what the coordinator of all servers orders."""
        match message:
            case Lease():
                return [*self._supply(message, now), *self._advance(now)]
            case Stop():
                return self._finish(Finish("finished"), now)
            case Refused(reason):
                return self._finish(Finish("failed", f"this server was refused: {reason}"), now)
            case Welcome():  # it came before the first worker was started
                return []
            case UseMean() if not self.plan.stopping.average:
                return []
        self._exchanges += 1
        self._loads += isinstance(message, UseModel)
        updates = sum(worker.updates for worker in [*self.workers.values(), *self.roster.departed])
        return [MergeStep(message, self.supply.trained, updates, self.progress.rows)]

    def exchanged(self, step: MergeStep, answer: ToCoordinator | None, now: float) -> list[Command]:
        """Report that the request of a message has been carried out."""
        self._exchanges -= 1
        self._loads -= isinstance(step.message, UseModel)
        if isinstance(answer, Loaded) and answer.changed:
            # Copies that workers have are out of date.
            self.recovery.rollbacks.total += 1
        answers: list[Command] = [] if answer is None else [Answer(answer)]
        return answers + self._advance(now)

    def _check_deadlines(self, now: float) -> list[Command]:
        if now < self._beat_at or self.finished:
            return []
        self._beat_at = now + BEAT_S
        return [Answer(self._beat(now))]

    def _beat(self, now: float) -> Heartbeat | ServerWorkers:
        """The message of each second: figures of the workers if they are due, else a heartbeat."""
        if now < self._figures_due:
            return Heartbeat()
        before, self._figures = self._figures, figures_of(self.roster, self.progress.seconds(now))
        if self._figures == before:
            return Heartbeat()
        self._figures_due = now + max(1.0, self.servers / FIGURES_PER_S)
        return self._figures

    def interrupt(self, now: float, reason: str = "interrupted") -> list[Command]:
        """End this server's part of the run; its rows go to other servers."""
        return self._finish(Finish("stopped", reason), now)

    def abandon(self, reason: str, now: float) -> list[Command]:
        if self.finished:
            return []
        return [Answer(Failed(reason[:1000])), *self._finish(Finish("failed", reason), now)]

    # Rows -------------------------------------------------------------------------------------

    def _supply(self, lease: Lease, now: float) -> list[Command]:
        """Add the rows of a lease to those that the workers are given."""
        if self.finished:
            return []
        self.supply.add(lease, now)
        if lease.task != "train":
            if self.leases.evaluated.finished:
                self.leases.evaluated = Ledger(0, grows=True)
                self.leases.evaluated_set = lease.task
                self.progress.evaluated = LossSums()
            self.leases.evaluated.extend(lease.start, lease.stop)
            return []
        # The plan is that of the other coordinator, so the rates differ by its roll-backs only.
        batch = min(lease.batch_size, lease.stop - lease.start)
        usual = self.plan.learning_rate.at(batch, lease.epoch)
        self.recovery.rollbacks.counted = round(math.log2(usual / lease.learning_rate))
        return self.epochs.supply(lease.epoch, lease.start, lease.stop)

    def _credited(self, worker: Worker, lease: Lease, done: Done) -> list[Command]:
        credited = self.supply.credit(lease.task, lease.start, done, worker.last_seen)
        return [Answer(each) for each in credited]

    def _removed(self, worker: Worker, returned: Sequence[Command], now: float) -> list[Command]:
        excluded = [each for each in returned if isinstance(each, Quarantine)]
        return [Answer(done) for each in excluded for done in self.supply.exclude(each, now)]

    def _advance(self, now: float, to: Sequence[Worker] | None = None) -> list[Command]:
        if self.decisions.failure and not self.finished:
            return self.abandon(self.decisions.failure, now)
        commands: list[Command] = []
        if self.phase == "waiting" and self.roster.enough_ready(self.plan, now):
            self.phase = "train"
            commands.append(Answer(self._ready()))
        if self.phase in ("train", "evaluate"):
            evaluating = not self.leases.evaluated.finished
            if evaluating != (self.phase == "evaluate"):
                self.phase, to = "evaluate" if evaluating else "train", None
            # The training clock runs while there are rows to train on.
            trains = self.phase == "train" and not self.epochs.rows.finished
            (self.progress.clock.run if trains else self.progress.clock.pause)(now)
        if self._loads or (self.phase == "evaluate" and self._exchanges):
            return commands  # the model is still being put in place
        return [*commands, *self.leases.hand_out(self.phase, now, to)]

    def _ready(self) -> Ready:
        """The report of this server: the total speed of its workers."""
        peaks = [peak_speed(each.profile, each.teams) or 0.0 for each in self.workers.values()]
        # of one row, since those of batches are their own matter: the time of a lease follows
        profile = ((1, 1 / sum(peaks)),) if sum(peaks) > 0 else ()
        return Ready(profile=profile, address=self.address, plane=self.plane)
