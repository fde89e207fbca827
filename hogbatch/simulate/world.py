"""Everything around the coordinator's mind, simulated: clock, network, processes, disk."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import assert_never

from hogbatch.coordinator.commands import (
    Command,
    Finish,
    Keep,
    Kill,
    Quarantine,
    Record,
    Report,
    Revoke,
    RollBack,
    Send,
    ShowMean,
    Shuffle,
    Snapshot,
)
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.policy.base import BatchPolicy
from hogbatch.simulate.audit import Audit
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.link_quality import LinkQuality
from hogbatch.simulate.process import SimulatedWorker
from hogbatch.simulate.speed import Speed
from hogbatch.wire.messages import Done, Hello, ToCoordinator, ToWorker, Work

TICK_S = 0.05
NOTICED_S = 0.01  # from a process's end to the coordinator's knowing, at most


@dataclass(frozen=True, slots=True)
class Conditions:
    """How well things go."""

    network: LinkQuality = field(default_factory=LinkQuality)
    shuffle_seconds: float = 1e-3  # at most, as are the next two
    copy_seconds: float = 1e-3
    write_seconds: float = 1e-3
    disk_full: float = 0.0  # probability that a checkpoint cannot be written
    restarts: int | None = 0  # of all workers together; None: as many as it takes
    bad_rows: int = 0  # of the training set, which kill whoever trains on them


class World:
    """The loop, the workers and their machine. `audit` looks on; None where speed matters."""

    def __init__(
        self,
        plan: Plan,
        policy: Callable[[], BatchPolicy],
        conditions: Conditions,
        seed: int,
        audit: Audit | None = None,
    ) -> None:
        self.plan, self.policy, self.conditions, self.audit = plan, policy, conditions, audit
        self.queue = EventQueue()
        self.package = plan.identity.package
        self.rng = Random(seed)
        self.state = Coordinator(plan, policy())
        self.processes: dict[int, SimulatedWorker] = {}  # alive, by pid
        self.finish: Finish | None = None
        self.poisoned = False
        self.held_up_for = 0.0  # seconds
        self.left_for_good = 0  # workers that are not started again
        self.messages: Counter[str] = Counter()
        self.lease_messages: Counter[int] = Counter()  # Work and Done, by whole seconds
        self.all_messages: Counter[int] = Counter()
        self.story: list[tuple[float, str]] = []  # what happened, for people
        self._seed = seed
        self._keys: dict[str, SimulatedWorker] = {}
        self._fences: Counter[int] = Counter()
        self._ended: defaultdict[str, float] = defaultdict(float)  # by kind of work beside
        self._life = 0  # of the coordinator
        self._held_up_until = 0.0
        self._checkpoint: SavedState | None = None
        self._quarantined: list[tuple[int, list[int]]] = []  # rows, and the bad ones among them
        self._pids = 0
        self._pending = 0  # processes that are to start, or whose end is not noticed yet
        self._restarts = 0

    # Running --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the coordinator, or a new one that goes on from the last checkpoint."""
        self._do(self.state.begin)
        self._tick(self._life)

    def run(self, until: float) -> None:
        """Let things happen until the run is over, or `until`."""
        while self.finish is None and self.queue.now < until and self.queue.step():
            pass

    def start(self, speed: Speed, after: float = 0.0) -> None:
        """Start a worker in some seconds."""
        self._pending += 1

        def begin() -> None:
            self._pending -= 1
            self._pids += 1
            process = SimulatedWorker(self, self._pids, speed, self.conditions.network, self.rng)
            self.processes[process.pid] = self._keys[process.key] = process
            process.start()

        self._in_this_life(after, begin)

    def tell(self, what: str) -> None:
        """Note what happened."""
        self.story.append((self.queue.now, what))

    def hold_up(self, seconds: float) -> None:
        """Stop the coordinator's process for a while."""
        self.held_up_for += seconds
        self._held_up_until = max(self._held_up_until, self.queue.now + seconds)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._do(self.state.interrupt)

    def crash(self, after: float) -> None:
        """Kill the coordinator; its workers die with it. Resume it in some seconds."""
        self._life += 1
        for process in self.processes.values():
            process.alive = False
        self.processes.clear()
        self._keys.clear()
        self._fences.clear()
        self._ended.clear()
        self._pending = 0
        self.poisoned = False
        saved = self._checkpoint
        while self._quarantined and self._rows_quarantined() > (saved.quarantined if saved else 0):
            self._quarantined.pop()
        if saved is None:
            self.state = Coordinator(self.plan, self.policy())
        else:
            self.state = Coordinator.resumed(self.plan, self.policy(), saved)
        if self.audit:
            self.audit.resume(saved)
        self._in_this_life(after, self.begin)

    def _rows_quarantined(self) -> int:
        return sum(rows for rows, _ in self._quarantined)

    def _in_this_life(self, seconds: float, act: Callable[[], None]) -> None:
        """Do `act` in some seconds, unless the coordinator has died by then."""
        life = self._life
        self.queue.after(seconds, lambda: act() if self._life == life else None)

    def _tick(self, life: int) -> None:
        if self._life == life and self.finish is None:
            if self.audit:
                self.audit.look(self.state, self.queue.now)
            self._do(self.state.tick)
            nobody = not self.processes and not self._pending and not self.state.workers
            if nobody:
                self._do(lambda now: self.state.abandon("all workers have ended", now))
            pause = max(TICK_S, self._held_up_until - self.queue.now)
            self.queue.after(pause, lambda: self._tick(life))

    # What workers meet ----------------------------------------------------------------------

    def say(self, worker: SimulatedWorker, message: ToCoordinator) -> None:
        self._count(message)
        life = self._life
        for arrival in worker.outbox.arrivals(self.queue.now, isinstance(message, Hello)):
            self.queue.at(arrival, lambda: self._hear(worker, message, life))

    def _hear(self, worker: SimulatedWorker, message: ToCoordinator, life: int) -> None:
        if self._life != life or self.finish is not None:
            return
        if self.queue.now < self._held_up_until:
            self.queue.at(self._held_up_until, lambda: self._hear(worker, message, life))
            return
        if self.audit:
            self.audit.heard(worker.key, message)
        self._do(lambda now: self.state.receive(worker.key, message, now))

    def fence(self, number: int) -> int:
        return self._fences[number]

    def reachable(self, key: str) -> bool:
        return self._keys[key].alive

    def deadly(self, work: Work) -> int | None:
        if work.task != "train" or not self.conditions.bad_rows:
            return None
        places = self._bad_places(work.epoch, self.plan.train_rows - self._epoch_rows(work.epoch))
        return min((row for row in places if work.start <= row < work.stop), default=None)

    def _epoch_rows(self, epoch: int) -> int:
        return self.state.epochs.rows.rows if epoch == self.state.epoch else self.plan.train_rows

    def _bad_places(self, epoch: int, without: int) -> dict[int, int]:
        """Where the bad rows lie in the order of `epoch`, but those quarantined: place → row."""
        last, gone = self.plan.train_rows - without, set[int]()
        for rows, bad in self._quarantined:
            gone.update(bad if without > 0 else ())
            without -= rows
        return {
            Random(f"{self._seed} {row} {epoch}").randrange(max(1, last)): row
            for row in range(self.conditions.bad_rows)
            if row not in gone
        }

    def ended(self, worker: SimulatedWorker, cause: str) -> None:
        self.processes.pop(worker.pid, None)
        self._pending += 1
        self._in_this_life(self.rng.uniform(0, NOTICED_S), lambda: self._bury(worker, cause))

    def _bury(self, worker: SimulatedWorker, cause: str) -> None:
        if self.finish is not None:
            return
        if self.queue.now < self._held_up_until:
            wait = self._held_up_until - self.queue.now
            self._in_this_life(wait, lambda: self._bury(worker, cause))
            return
        self._pending -= 1
        self.left_for_good += not cause
        self._do(lambda now: self.state.lose(worker.key, cause or "it has ended", now))
        left = self.conditions.restarts
        if cause and (left is None or self._restarts < left):
            self._restarts += 1
            self.start(worker.speed, 0.1 if worker.finished else 1.0)

    # The coordinator's hands ----------------------------------------------------------------

    def _do(self, event: Callable[[float], list[Command]]) -> None:
        if self.finish is None:
            self._carry_out(event(self.queue.now))

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            if self.audit:
                self.audit.commanded(command, self)
            match command:
                case Send():
                    self._send(command)
                case Revoke(number):
                    self._fences[number] += 1
                case Kill(pid):
                    if pid in self.processes:
                        self.processes[pid].end("killed by the coordinator")
                case Shuffle(epoch, without):
                    ready = partial(self.state.order_ready, epoch, without)
                    self._background("shuffle", self.conditions.shuffle_seconds, ready)
                case Quarantine(epoch, start, stop):
                    places = self._bad_places(epoch, self.plan.train_rows - self._epoch_rows(epoch))
                    bad = [row for place, row in places.items() if start <= place < stop]
                    self._quarantined.append((stop - start, bad))
                    self.tell(f"rows {start}..{stop} of epoch {epoch} are quarantined")
                case Snapshot(saved):
                    self._background(
                        "copy", self.conditions.copy_seconds, partial(self._copy, saved)
                    )
                case RollBack():
                    self.poisoned = False
                    self.tell("rolled back")
                case Finish():
                    self.finish = command
                case Record() | Report() | ShowMean() | Keep():
                    pass
                case _:
                    assert_never(command)

    def _send(self, command: Send) -> None:
        worker = self._keys[command.worker]
        if not worker.alive:
            self._do(lambda now: self.state.lose(command.worker, "is unreachable", now))
            return
        self._count(command.message)
        for arrival in worker.inbox.arrivals(self.queue.now):
            self.queue.at(arrival, lambda: worker.hear(command.message))

    def _count(self, message: ToCoordinator | ToWorker) -> None:
        self.messages[type(message).__name__] += 1
        self.all_messages[int(self.queue.now)] += 1
        if isinstance(message, Work | Done):
            self.lease_messages[int(self.queue.now)] += 1

    def _background(
        self, work: str, seconds: float, event: Callable[[float], list[Command]]
    ) -> None:
        """Let the coordinator hear of `event` within `seconds`, after all other such `work`."""

        def report() -> None:
            if self.queue.now < self._held_up_until:
                self._in_this_life(self._held_up_until - self.queue.now, report)
            else:
                self._do(event)

        ended = max(self._ended[work], self.queue.now) + self.rng.uniform(0, seconds)
        self._ended[work] = ended
        self._in_this_life(ended - self.queue.now, report)

    def _copy(self, saved: SavedState | None, now: float) -> list[Command]:
        """The model is looked through and copied, and with `saved` it is being written."""
        bad = "layers.0.weight[1, 2]" if self.poisoned else ""
        if self.audit:
            self.audit.copied(finite=not bad)
        if saved is not None and not bad:
            self._background("write", self.conditions.write_seconds, partial(self._write, saved))
        return self.state.snapshot_taken(bad, now)

    def _write(self, saved: SavedState, now: float) -> list[Command]:
        if self.rng.random() < self.conditions.disk_full:
            return self.state.checkpoint_written("No space left on device", now)
        self._checkpoint = saved
        return self.state.checkpoint_written("", now)
