"""The coordinator's mind: messages in, commands out.

This module covers
- which rows go to whom, in leases of how many rows and batches of which size;
- what happens when a worker joins, finishes, fails, falls silent or dies;
- when to evaluate, and when a run is over.

This module does *not* cover
- sockets, clocks, files and processes (see :mod:`hogbatch.coordinator.loop`);
- the size of a batch (see :mod:`hogbatch.policy`).

Phases: waiting → train ⇄ drain → evaluate → train … → finished. In `drain` nothing new is handed
out until the last lease is back; then nobody writes the model, and it is evaluated and copied.
"""

from dataclasses import dataclass, field
from typing import Literal

from hogbatch.coordinator.ledger import Ledger
from hogbatch.coordinator.plan import (
    Command,
    Finish,
    Keep,
    Kill,
    Plan,
    Record,
    Report,
    Revoke,
    Send,
    ShowMean,
    Shuffle,
    Status,
)
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import Lease, Worker
from hogbatch.policy.base import BatchPolicy
from hogbatch.policy.throughput import useful_limits
from hogbatch.telemetry.records import Faults, Standing
from hogbatch.wire.messages import (
    Beat,
    Done,
    Failed,
    Goodbye,
    Hello,
    Ready,
    Refused,
    Stop,
    ToCoordinator,
)

LEASES_IN_FLIGHT = 2  # one running, one waiting: hides the round trip
AWAKE_S = 2.0  # a longer pause between two ticks means that this process was stopped
MOST_SKIPPED = 0.05  # share of rows; beyond it the model has diverged


@dataclass(slots=True)
class Coordinator:
    """Runs one training. Change it through its public methods only; each returns commands."""

    plan: Plan
    policy: BatchPolicy
    roster: Roster = field(init=False)
    phase: Literal["waiting", "train", "drain", "evaluate", "finished"] = "waiting"
    epoch: int = 0
    progress: Progress = field(init=False)
    epoch_rows: Ledger = field(init=False)
    test_rows: Ledger = field(init=False)
    ending: Status | None = None  # set once the end is decided
    faults: dict[str, int] = field(default_factory=dict)
    _orders: set[int] = field(default_factory=set)  # epochs whose order is ready
    _lease: int = 0
    _alone_since: float | None = None
    _ticked: float | None = None

    def __post_init__(self) -> None:
        self.progress = Progress(self.plan)
        self.roster = Roster(self.plan.beta)
        self.epoch_rows = Ledger(self.plan.train_rows)
        self.test_rows = Ledger(self.plan.test_rows)

    @property
    def workers(self) -> dict[str, Worker]:
        """Everyone attached, by key."""
        return self.roster.attached

    # Events ---------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Command]:
        """Start to wait for workers, and have the first epoch shuffled."""
        self._alone_since = now
        return [Shuffle(0)]

    def order_ready(self, epoch: int, now: float) -> list[Command]:
        """The order of `epoch` lies in shared memory."""
        self._orders.add(epoch)
        return self._advance(now)

    def receive(self, key: str, message: ToCoordinator, now: float) -> list[Command]:
        """Take in one message from worker `key`."""
        if isinstance(message, Hello):
            return self._admit(key, message, now)
        worker = self.workers.get(key)
        if worker is None:  # given up for lost: its rows are with another
            return [Send(key, Stop())]
        worker.last_seen = now
        match message:
            case Ready(profile):
                return self._make_ready(worker, profile, now)
            case Done():
                return self._credit(worker, message, now)
            case Beat():
                return []
            case Failed(reason):
                return self.lose(key, reason, now)
            case Goodbye():
                return self._remove(worker, now)

    def lose(self, key: str, reason: str, now: float) -> list[Command]:
        """Worker `key` is gone or useless; its rows go to whoever is idle."""
        worker = self.workers.get(key)
        if worker is None:
            return []
        self._count("workers_lost")
        lost = Record("worker_lost", {"worker": worker.name, "reason": reason})
        return [lost, *self._remove(worker, now)]

    def tick(self, now: float) -> list[Command]:
        """Let time pass; call it a few times a second."""
        if self._ticked is not None and now - self._ticked > AWAKE_S:
            self._sleep(now - self._ticked, now)
        self._ticked = now
        commands: list[Command] = []
        for worker in self.roster.silent(now):
            silence = f"silent for {now - worker.last_seen:.0f} s"
            commands += [Kill(worker.pid), *self.lose(worker.key, silence, now)]
        waited = now - self._alone_since if self._alone_since is not None else 0.0
        if waited > self.plan.ending.wait_for_workers and self.phase != "finished":
            return commands + self.abandon(f"no worker for {waited:.0f} s", now)
        return commands + self._advance(now)

    def _sleep(self, seconds: float, now: float) -> None:
        """Leave out time in which this process was stopped and could hear nobody."""
        self.progress.clock.skip(seconds, now)
        if self._alone_since is not None:
            self._alone_since += seconds
        self.roster.forgive(seconds)

    def interrupt(self, now: float) -> list[Command]:
        """End the run after the leases at hand, without another evaluation."""
        if self.phase == "finished":
            return []
        self.ending = self.ending or "stopped"
        if self.phase == "waiting" or not self.workers:  # no lease is at hand
            return self._stop_here(now)
        return self._advance(now)

    def abandon(self, reason: str, now: float) -> list[Command]:
        """End the run at once as failed; the best model so far, or else the last, is kept."""
        return [*self._keep_last(), *self._finish("failed", reason, now)]

    # Membership -----------------------------------------------------------------------------

    def _admit(self, key: str, hello: Hello, now: float) -> list[Command]:
        if key in self.workers:
            return self.lose(key, "said Hello twice", now) + self._admit(key, hello, now)
        reason = self.plan.identity.objection(hello) or self.roster.full()
        if reason or self.phase == "finished":
            return [Send(key, Refused(reason) if reason else Stop())]
        worker = self.roster.admit(key, hello, now)
        self._alone_since = None
        welcome = self.plan.training.welcome(self.plan.identity.run, worker.number, worker.name)
        joined = {"worker": worker.name, "runs_on": hello.name, "pid": worker.pid}
        return [Send(key, welcome), Record("worker_joined", joined)]

    def _make_ready(
        self, worker: Worker, profile: tuple[tuple[int, float], ...], now: float
    ) -> list[Command]:
        given = self.plan.limits.cpu if worker.device == "cpu" else self.plan.limits.gpu
        if given is None:
            if not any(rows > 0 and seconds > 0 for rows, seconds in profile):
                return self.lose(worker.key, "sent no measured batch sizes", now)
            given = useful_limits(profile)
        worker.limits = given
        self.roster.make_ready(worker, now)
        worker.joined_at = self.progress.seconds(now)
        worker.head_start = self.roster.head_start(worker)
        worker.resize(self.policy.first_size(worker.view()), worker.joined_at)
        ready = {"worker": worker.name, "limits": given, "batch_size": worker.batch_size}
        return [Record("worker_ready", ready), *self._advance(now)]

    def _remove(self, worker: Worker, now: float) -> list[Command]:
        for lease in reversed(worker.leases.values()):
            (self.epoch_rows if lease.task == "train" else self.test_rows).give_back(lease.number)
            self._count("leases_reissued")
        reissued = [[lease.start, lease.stop] for lease in worker.leases.values()]
        worker.leases.clear()
        self.roster.remove(worker, self.progress.seconds(now))
        if not self.workers:
            self._alone_since = now
        left = Record("worker_left", {"worker": worker.name, "reissued": reissued})
        return [Revoke(worker.number), left, *self._advance(now)]

    # Work -----------------------------------------------------------------------------------

    def _credit(self, worker: Worker, done: Done, now: float) -> list[Command]:
        lease = worker.leases.pop(done.lease, None)
        if lease is None:  # said twice, or never handed out
            self._count("messages_refused")
            return []
        if lie := lease.objection(done):
            worker.leases[lease.number] = lease
            return self.lose(worker.key, lie, now)
        if lease.task == "train":
            commands = self._train_done(worker, lease, done, now)
        else:
            commands = []
            self.test_rows.acknowledge(lease.number, done.rows)
            self.progress.tested.add(done)
        if done.too_large:
            commands += self._shrink(worker, lease, done, now)
        return [*commands, *self._advance(now)]

    def _train_done(self, worker: Worker, lease: Lease, done: Done, now: float) -> list[Command]:
        rows = self.epoch_rows.acknowledge(lease.number, done.rows)
        self.progress.add(done)
        self._count("rows_skipped", done.skipped)
        self._count("merges_refused", done.refused)
        worker.add(done)
        seconds = self.progress.seconds(now)
        if not done.too_large:
            size = self.policy.next_size(worker.view(), self.roster.others(worker))
            worker.resize(size, seconds)
        fields: dict[str, object] = {
            "seconds": round(seconds, 4),
            "epoch": self.epoch,
            "rows": list(rows),
            "worker": worker.name,
            "batch_size": lease.batch_size,
            "updates": done.updates,
        }
        if worker.device == "gpu":
            fields["staleness"] = round(done.staleness, 4)
        did = [Record("lease", fields)] if done.rows else []
        return [*did, *[Record("merge_refused", {"worker": worker.name})] * done.refused]

    def _shrink(self, worker: Worker, lease: Lease, done: Done, now: float) -> list[Command]:
        """Let a worker go on with batches that its device has memory for."""
        too_large = lease.beyond_memory(done)
        if not worker.shrink(too_large, self.progress.seconds(now)):
            return []  # the second lease of the old size
        size = worker.batch_size if lease.task == "train" else worker.evaluation_batch
        return [Record("out_of_memory", {"worker": worker.name, "from": too_large, "to": size})]

    def _advance(self, now: float) -> list[Command]:
        """Do whatever can be done now."""
        commands: list[Command] = []
        waiting = self.phase == "waiting" and self.epoch in self._orders
        if waiting and self.roster.enough_ready(self.plan, now):
            self.phase = "train"
            self.progress.clock.start(now)
            commands.append(Shuffle(self.epoch + 1))
        if self.phase in ("train", "drain") and self.epoch_rows.finished:
            commands += self._end_epoch()
        if self.phase == "train" and self._pause_is_due(now):
            self.phase = "drain"
        if self.phase == "drain" and not self.epoch_rows.held:
            commands += self._begin_evaluation(now)
        if self.phase == "evaluate" and self.test_rows.finished:
            commands += self._end_evaluation(now)
        return commands + self._hand_out(now)

    def _end_epoch(self) -> list[Command]:
        acknowledged = Record("epoch", {"epoch": self.epoch, "rows": self.epoch_rows.acknowledged})
        self.epoch += 1
        self._orders.discard(self.epoch - 1)
        self.epoch_rows = Ledger(self.plan.train_rows)
        if self.plan.ending.epochs is not None and self.epoch >= self.plan.ending.epochs:
            self.ending = self.ending or "finished"
            return [acknowledged]
        return [acknowledged, Shuffle(self.epoch + 1)]

    def _hand_out(self, now: float) -> list[Command]:
        """Give every ready worker leases, the first to all before the second to any."""
        if self.phase not in ("train", "evaluate"):
            return []
        if self.phase == "train" and self.epoch not in self._orders:
            return []
        ledger = self.epoch_rows if self.phase == "train" else self.test_rows
        commands: list[Command] = []
        for in_flight in range(LEASES_IN_FLIGHT):
            for worker in self.workers.values():
                if worker.ready and len(worker.leases) == in_flight and self._suits(worker, ledger):
                    commands.append(self._assign(worker, ledger))
        return commands

    def _suits(self, worker: Worker, ledger: Ledger) -> bool:
        """Whether there is work, and the others would not have to wait for this worker."""
        training = ledger is self.epoch_rows
        return bool(ledger.todo) and not (
            training and self.roster.would_wait(worker, ledger.remaining)
        )

    def _assign(self, worker: Worker, ledger: Ledger) -> Send:
        training = ledger is self.epoch_rows
        size = worker.batch_size if training else worker.evaluation_batch
        rows = self.roster.lease_rows(worker, size, self.plan.lease_seconds, ledger.remaining)
        self._lease += 1
        start, stop = ledger.take(self._lease, rows)
        lease = Lease(self._lease, "train" if training else "evaluate", start, stop, size)
        rate = self.plan.learning_rate.at(min(size, stop - start)) if training else 0.0
        return Send(worker.key, worker.take(lease, self.epoch, rate))

    # Evaluation and the end -----------------------------------------------------------------

    def _pause_is_due(self, now: float) -> bool:
        if self.progress.time_is_up(now):
            self.ending = self.ending or "time"
        return self.ending is not None or self.progress.evaluation_is_due(now)

    def _begin_evaluation(self, now: float) -> list[Command]:
        if self.ending == "stopped":
            return self._stop_here(now)
        self.phase = "evaluate"
        self.test_rows = Ledger(self.plan.test_rows)
        self.progress.begin_evaluation(now)
        return [ShowMean(True)] * self.plan.ending.average

    def _stop_here(self, now: float) -> list[Command]:
        """End an interrupted run while nobody writes the model."""
        return [*self._keep_last(), *self._finish("stopped", "interrupted", now)]

    def _keep_last(self) -> list[Command]:
        """Keep the model as it stands, if that is the one to keep and anything was learnt."""
        wanted = self.progress.wants_current_model and self.progress.rows > 0
        return [Keep(None)] if wanted and self.phase != "finished" else []

    def _end_evaluation(self, now: float) -> list[Command]:
        skipped = self.progress.trained.share_skipped
        evaluation = self.progress.end_evaluation(now)
        for worker in self.workers.values():
            worker.update_trace.append((round(evaluation.seconds, 4), worker.updates))
        if self.progress.target_is_met(evaluation):
            self.ending = "target"
        commands: list[Command] = [Report(evaluation)]
        if self.progress.is_best(evaluation) or (self.ending and self.progress.wants_current_model):
            commands.append(Keep(evaluation))
        commands += [ShowMean(False)] * self.plan.ending.average
        if skipped > MOST_SKIPPED:
            return commands + self._diverged(skipped, now)
        if self.ending:
            return commands + self._finish(self.ending, "", now)
        self.phase = "train"
        self.progress.clock.start(now)
        return commands

    def _diverged(self, skipped: float, now: float) -> list[Command]:
        reason = (
            f"training has diverged: {skipped:.0%} of the rows since the last evaluation gave no "
            "finite gradient; lower --lr, or scale features (--standardize) and labels"
        )
        return self._finish("failed", reason, now, diverged=True)

    def _finish(
        self, status: Status, reason: str, now: float, diverged: bool = False
    ) -> list[Command]:
        if self.phase == "finished":
            return []
        self.progress.clock.pause(now)
        self.phase = "finished"
        self.ending = status
        return [*(Send(key, Stop()) for key in self.workers), Finish(status, reason, diverged)]

    # Account --------------------------------------------------------------------------------

    def standing(self, now: float) -> Standing:
        """Where the run stands."""
        seconds = self.progress.seconds(now)
        return Standing(
            seconds=seconds,
            epochs=self.progress.epochs,
            rows=self.progress.rows,
            workers=self.roster.records(seconds),
            faults=Faults(**self.faults),
        )

    def validate(self) -> None:
        """Check what must always hold."""
        for ledger, task in ((self.epoch_rows, "train"), (self.test_rows, "evaluate")):
            ledger.validate()
            leases = [lease for worker in self.workers.values() for lease in worker.leases.values()]
            numbers = [lease.number for lease in leases if lease.task == task]
            assert sorted(numbers) == sorted(ledger.held), (numbers, ledger.held)
        assert all(len(w.leases) <= LEASES_IN_FLIGHT for w in self.workers.values())

    def _count(self, fault: str, times: int = 1) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + times
