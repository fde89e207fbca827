"""The merges of the models of several servers: their times, steps and members.

Without servers, whose workers share one model, nothing is ever due.

A server is a worker with a model of its own. A merge has these steps, each of which begins when all
servers have finished the one before, while all of them train on:

=========  ==================================================================  =========
step       what a server does                                                  answer
=========  ==================================================================  =========
collect    copies the change of its model since the last merge                 Collected
connect    connects with the others, if there are other servers than before    Connected
reduce     takes part in summing the changes of all servers                    Reduced
apply      adds the sum, without its own change, to its model                  Applied
=========  ==================================================================  =========

Between servers that are connected, the steps "collect" and "reduce" are one message, unless the
weights of the changes depend on what was collected. If a server is lost in this step, or its model
is not finite, the others begin again with "collect".

When all servers have the sum, the merge counts: the rows whose updates are in the changes are
acknowledged. A server that is lost before that takes its change with it, and its rows return to the
queue; the others repeat the step without it. So each row of an epoch is in the merged model once.

A server that joins gets the model of another one between two merges, and takes part from then on.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from hogbatch.coordinator.commands import Command, LoadServer, Record, Send
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.merge_pace import MergePace, MergeSettings
from hogbatch.coordinator.merge_rules import merge_weights, sum_scales
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.worker import Worker
from hogbatch.events.event import PlaneChosen, ServersMerged
from hogbatch.wire import messages

Step = Literal["collect", "connect", "reduce", "apply"]

SAMPLE_S: Final = 0.1  # between two samples of the moving mean

PATIENCE_S: Final = 30.0  # for the answers to a step; longer if the last merge took long
PATIENCE_FACTOR: Final = 20.0  # times the seconds of the last merge


@dataclass(slots=True)
class Merges:
    """The merges of the servers in `roster`."""

    settings: MergeSettings
    roster: Roster
    epochs: Epochs
    number: int = 0  # of the last merge that was begun
    step: Step | None = None  # of the merge that is under way
    attempt: int = 0  # of its step "reduce"
    poisoned: bool = False  # no server has a finite model
    plane: str | None = None  # by which the last server that joined moves its changes
    version: int = 0  # of the servers that are connected
    _members: dict[str, messages.Ready] = field(
        default_factory=dict
    )  # by key, in the order of joining
    _addresses: dict[str, bytes] = field(default_factory=dict)  # of these, for the next connection
    _connected: list[str] = field(default_factory=list)  # keys, in the last step "connect"
    _waiting: dict[str, messages.Ready] = field(default_factory=dict)  # for a model
    _loading: str | None = None  # the key of the server that a model is being written to
    _failures: int = 0  # to write it, in a row
    copied: bool = True  # whether this process has the merged model, too
    _participants: list[str] = field(default_factory=list)  # servers in the current step
    _answers: dict[str, messages.FromServer] = field(default_factory=dict)  # to the current step
    _collected: dict[str, messages.Collected] = field(default_factory=dict)
    _weights: list[float] = field(default_factory=list)
    _rows: int = 0  # that the merge acknowledged
    _step_began: float = 0.0
    _sampled: float = -math.inf  # when the moving mean had its last sample
    pace: MergePace = field(default_factory=MergePace)
    _unreachable: tuple[str, str] | None = None  # as the last answer says

    @property
    def busy(self) -> bool:
        """Whether a merge is under way, or a model is being written to a server."""
        return bool(self.step or self._loading)

    @property
    def settled(self) -> bool:
        """Whether all models are equal, and contain all rows trained on so far."""
        return not self.busy and not self.epochs.rows.unmerged

    # Servers that join and leave ------------------------------------------------------------------

    def wait_for_model(self, worker: Worker, ready: messages.Ready) -> bool:
        """Whether `worker`, which is ready otherwise, first needs the model."""
        if worker.device == "server":
            self._waiting[worker.key] = ready
        return worker.device == "server"

    def written(self, key: str) -> list[Command]:
        """The model was written to the memory of server `key`."""
        self._failures = 0
        return [Send(key, messages.UseModel())] if key == self._loading else []

    def not_written(self, key: str) -> bool:
        """Writing the model to server `key` has failed; whether that was its own fault."""
        # The server that the model was read from may have been lost, so others are tried first.
        self._failures += 1
        at_fault = key == self._loading and self._failures > len(self._members)
        self._loading = None
        self._failures = 0 if at_fault else self._failures
        return at_fault

    @property
    def model_is_lost(self) -> bool:
        """Whether the merged model was lost together with the last server that had it."""
        return not self._members and not self.copied

    def loaded(self, key: str) -> tuple[messages.Ready, list[Command]] | None:
        """Server `key` uses the model: return its Ready; None if it was not given a model."""
        if key != self._loading:
            return None
        self._loading = None
        ready = self._members[key] = self._waiting.pop(key)
        self._addresses[key] = ready.address
        if ready.plane == self.plane:
            return ready, []
        self.plane = ready.plane
        return ready, [Record(PlaneChosen(ready.plane))]

    def removed(self, key: str, now: float) -> list[Command]:
        """Worker `key` has left or is lost; its leases have been taken back."""
        self._waiting.pop(key, None)
        if self._loading == key:
            self._loading = None
        self._members.pop(key, None)
        self._addresses.pop(key, None)
        if key not in self._participants:
            return []
        self._participants.remove(key)
        self._answers.pop(key, None)
        self._collected.pop(key, None)
        if not self._participants:
            self.step = None
        elif self.step == "reduce":
            collected = all(each in self._collected for each in self._participants)
            return self._reduce(now) if collected else self._collect(list(self._participants), now)
        return self._next_step(now)

    # Merges ---------------------------------------------------------------------------------------

    def advance(self, now: float, *, draining: bool, may_load: bool) -> list[Command]:
        """Begin what is due: writing the model to a server, or a merge.

        `draining`: no more rows are handed out before the next merge. `may_load`: the model of a
        server may be copied to another one.
        """
        if self.busy or self.poisoned:
            return []
        if self._waiting and may_load:
            self._loading = next(iter(self._waiting))
            sources = list(self._members)
            source = sources[self._failures % len(sources)] if sources else None
            return [LoadServer(self._loading, source)]
        if self.due_at(draining=draining) > now:
            return []
        self.pace.begin(now)
        self.number += 1
        self._collected.clear()
        members = list(self._members)
        if self.settings.rule != "average" and (members == self._connected or len(members) == 1):
            return self._sum(members, [1.0] * len(members), now, collect=True)
        return self._collect(members, now)

    def _collect(self, members: Sequence[str], now: float) -> list[Command]:
        self._collected.clear()
        return self._begin("collect", members, messages.Collect(self.number), now)

    def due_at(self, *, draining: bool) -> float:
        """When the next merge begins; infinity if that depends on what servers will have done."""
        if self.busy or self.poisoned or not self._members:
            return math.inf
        rows = self.epochs.rows
        if not rows.held and (draining or not self.roster.can_take(rows)):
            # Nothing is left to train on before, or only rows of parts that no server holds.
            return -math.inf if rows.unmerged else math.inf
        if draining or not rows.remaining:  # one that training waits for follows soon
            return math.inf
        if rows.unmerged_rows >= self.settings.rows:
            return self.pace.earliest(self.settings, rows.unmerged_rows)
        # A merge follows soon if few rows are left. Adaptive SGD's weights depend on updates, which
        # are counted when leases end.
        few = rows.remaining < self.settings.rows
        if few or not rows.held or self.settings.rule == "average" or len(self._members) < 2:
            return math.inf
        return self.pace.expected(self.settings, self.roster.rows_per_second)

    def _begin(
        self, step: Step, keys: Sequence[str], message: messages.ToServer, now: float
    ) -> list[Command]:
        self.step, self._participants, self._step_began = step, list(keys), now
        self._answers.clear()
        return [Send(key, message) for key in keys]

    def receive(self, worker: Worker, message: messages.FromServer, now: float) -> list[Command]:
        """Handle the answer of `worker` to the current step; others are ignored."""
        self._unreachable = None
        if not self._is_current(message):
            return []
        if isinstance(message, messages.Connected | messages.Reduced):
            # A merge with a server that cannot be reached cannot succeed, so it counts as lost.
            for key in self._participants:
                if self.roster.attached[key].number == message.unreachable:
                    self._unreachable = key, f"{worker.name} cannot reach it"
        if isinstance(message, messages.Reduced):
            if message.unreachable >= 0:
                return []
            if message.collected is not None and not message.collected.finite:
                return self._collect(list(self._participants), now)
            if message.collected is not None:
                self._collected[worker.key] = message.collected
        if worker.key not in self._participants:
            return []
        self._answers[worker.key] = message
        return self._next_step(now)

    def _is_current(self, message: messages.FromServer) -> bool:
        """Whether `message` answers the current step."""
        match message:
            case messages.Collected(merge):
                return (self.step, merge) == ("collect", self.number)
            case messages.Connected(version):
                return (self.step, version) == ("connect", self.version)
            case messages.Reduced(merge, attempt):
                return (self.step, merge, attempt) == ("reduce", self.number, self.attempt)
            case messages.Applied(merge):
                return (self.step, merge) == ("apply", self.number)
        return False

    def unusable(self) -> Iterator[tuple[str, str]]:
        """The keys of servers that must be removed after the last answer, and why.

        Each is to be removed before the next one is asked for, because that changes the merge.
        """
        if self._unreachable:
            yield self._unreachable
        for key, collected in list(self._collected.items()):
            if not collected.finite and key in self._members and not self.poisoned:
                yield key, "its model is not finite"

    def late(self, now: float) -> list[str]:
        """Keys of the servers that have not answered the current step in time."""
        patience = max(PATIENCE_S, PATIENCE_FACTOR * self.pace.seconds)
        if not self.step or now - self._step_began <= patience:
            return []
        return [key for key in self._participants if key not in self._answers]

    def _next_step(self, now: float) -> list[Command]:
        """Begin the next step if all servers have answered the current one."""
        if len(self._answers) < len(self._participants):
            return []
        match self.step:
            case "collect":
                for key, answer in self._answers.items():
                    assert isinstance(answer, messages.Collected), "other answers were ignored"
                    self._collected[key] = answer
                return self._reduce(now)
            case "connect":
                for key, answer in self._answers.items():
                    assert isinstance(answer, messages.Connected), "other answers were ignored"
                    self._addresses[key] = answer.address
                return self._reduce(now)
            case "reduce":
                return self._apply(now)
            case "apply":
                return self._end(now)
        return []

    def _reduce(self, now: float) -> list[Command]:
        """Sum the finite changes of the servers that are still there, once they are connected."""
        finite = [key for key, collected in self._collected.items() if collected.finite]
        if not finite:
            self.step, self.poisoned = None, bool(self._collected)
            return []
        if len(finite) > 1 and list(self._members) != self._connected:
            return self._connect(now)
        weights = [1.0] * len(finite)  # the changes are added
        if self.settings.rule == "average":
            done = [self._collected[key] for key in finite]
            sizes = [each.batch_size for each in done]
            weights = merge_weights([each.updates for each in done], sizes)
        return self._sum(finite, weights, now)

    def _sum(
        self, keys: Sequence[str], weights: list[float], now: float, *, collect: bool = False
    ) -> list[Command]:
        self._weights = weights
        self.attempt += 1
        numbers = tuple(self.roster.attached[key].number for key in keys)
        message = messages.Reduce(self.number, self.attempt, numbers, tuple(weights), collect)
        return self._begin("reduce", keys, message, now)

    def _connect(self, now: float) -> list[Command]:
        self._connected = list(self._members)
        self.version += 1
        numbers = tuple(self.roster.attached[key].number for key in self._connected)
        addresses = tuple(self._addresses[key] for key in self._connected)
        message = messages.Servers(self.version, numbers, addresses)
        return self._begin("connect", self._connected, message, now)

    def _apply(self, now: float) -> list[Command]:
        """All servers have the sum: the merge counts."""
        self.copied = False
        self._rows = sum(self._acknowledge(key) for key in self._participants)
        sample = now - self._sampled >= SAMPLE_S
        self._sampled = now if sample else self._sampled
        message = messages.Apply(self.number, sample, self._scales())
        return self._begin("apply", self._participants, message, now)

    def _scales(self) -> tuple[float, ...]:
        """Factors of the sum; those of the first server, so that all use the same bits."""
        summed = self._answers[self._participants[0]]
        if self.settings.rule != "adasum" or not isinstance(summed, messages.Reduced):
            return ()
        squares = [self._collected[key].squares for key in self._participants]
        return tuple(sum_scales(squares, summed.squares))

    def _acknowledge(self, key: str) -> int:
        """Acknowledge the rows whose updates are in the change of server `key`."""
        worker = self.roster.attached[key]
        count = self._collected[key].leases - worker.merged_leases
        merged, worker.unmerged = worker.unmerged[:count], worker.unmerged[count:]
        worker.merged_leases += len(merged)
        return self.epochs.rows.merge(merged)

    def _end(self, now: float) -> list[Command]:
        seconds = busy_seconds = 0.0
        for key, answer in self._answers.items():
            assert isinstance(answer, messages.Applied), "other answers were ignored"
            seconds = max(seconds, answer.seconds)
            busy = answer.cpu_seconds / self.roster.attached[key].threads
            busy_seconds = max(busy_seconds, busy)
        self.pace.end(seconds, busy_seconds, now)
        self.step = None
        merged = ServersMerged(
            merge=self.number,
            servers=[self.roster.attached[key].name for key in self._participants],
            weights=[round(weight, 6) for weight in self._weights],
            rows=self._rows,
            merge_seconds=round(seconds, 6),
            busy_seconds=round(busy_seconds, 6),
        )
        return [Record(merged)]

    def rolled_back(self) -> None:
        """The last good model is restored; changes since then are discarded."""
        self.poisoned = False
        for worker in self.roster.attached.values():
            worker.merged_leases += len(worker.unmerged)
            worker.unmerged.clear()
        self.epochs.rows.merge(list(self.epochs.rows.unmerged))
