"""A coordinator of several servers, with a simulated clock and servers that a test controls.

The model of a simulated server is the multiset of the rows whose updates it contains, so a test can
see whether a row is missing in a merged model, or is in it twice.
"""

import heapq
import math
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, count

from hogbatch.coordinator.commands import (
    Finish,
    Keep,
    LoadServer,
    Record,
    Revoke,
    RollBack,
    Send,
    ShowMean,
    Shuffle,
    Snapshot,
)
from hogbatch.coordinator.merge_pace import MergeSettings
from hogbatch.coordinator.merges import Merges
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import ServersMerged
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.fixed import Fixed
from hogbatch.wire.messages import (
    Applied,
    Apply,
    Collect,
    Collected,
    Connected,
    Done,
    Heartbeat,
    Hello,
    Lease,
    Loaded,
    Ready,
    Reduce,
    Reduced,
    Servers,
    Stop,
    UseModel,
    Welcome,
)
from tests.support.coordinator_stage import FINGERPRINT, PACKAGE, make_plan
from tests.support.row_invariants import check_rows

LATENCY = 0.001  # seconds of a message
BEAT = 0.5


@dataclass
class Server:
    """A simulated server."""

    key: str
    row_seconds: float
    number: int = -1  # from Welcome
    parts: tuple = ()  # of divided data that it holds
    evaluated: list = field(default_factory=list)  # (set, start, stop)
    alive: bool = True
    leases: deque = field(default_factory=deque)
    merged: Counter = field(default_factory=Counter)  # rows in the last merged model
    change: Counter = field(default_factory=Counter)  # rows since then
    copied: Counter = field(default_factory=Counter)
    finished: int = 0
    peers: tuple = ()
    address: bytes = b""
    finite: bool = True
    loaded: bool = False

    @property
    def model(self):
        return self.merged + self.change


def rows_of(epochs, rows):
    """The model that contains every row of each epoch once."""
    return Counter((epoch, row) for epoch in range(epochs) for row in range(rows))


class ServersStage:
    """Runs the coordinator and its servers; events are in the order of their simulated times."""

    def __init__(self, *, merge_rows=100, rule="adasum", share=0.05, saved=None, **plan):
        self.settings = MergeSettings(merge_rows, 10, rule, share=share)
        parts = {name: plan.pop(f"{name}_parts", ()) for name in ("train", "validation")}
        divided = {"parts": parts, "part_names": plan.pop("part_names", ())}
        made = replace(make_plan(**plan), merging=partial(Merges, self.settings), **divided)
        self.state = self._coordinator(made, saved)
        self.now, self._order = 0.0, count()
        self._events = []
        self.servers = {}  # by key, those that were lost too
        self.records = []
        self.shown = []  # whether the moving mean is, after each change
        self.finish = None
        self.complete = saved is None  # its model has all rows since the start
        self.unloadable = Counter()  # key → how often loading the model fails
        self.bad = None  # where the merged model is not finite
        self.model = Counter()  # of this process, as copied for snapshots
        self.kept = None  # a copy of it
        self.failing_copies = 0  # the next ones, after the first
        self.reductions = self.connections = 0
        self._tick_at = self.now  # the next one
        self._execute(self.state.begin(self.now))
        self._tick(self.now)

    def _coordinator(self, plan, saved):
        policy = Fixed(PolicySettings())
        if saved is None:
            return Coordinator(plan, policy)
        return Coordinator.resumed(plan, policy, saved)

    # Servers --------------------------------------------------------------------------------

    def join(self, key, row_seconds=1e-3, profile=(), parts=()):
        server = self.servers[key] = Server(key, row_seconds, address=key.encode(), parts=parts)
        hello = Hello("server", "a host", 1, len(self.servers), PACKAGE, FINGERPRINT, parts)
        self._post(server, hello)
        self._post(server, Ready(profile, address=key.encode()))
        self._beat(server)
        return server

    def kill(self, key, reason="killed"):
        """Let the server die: what it has sent so far may still arrive."""
        self.servers[key].alive = False
        self.after(LATENCY, lambda: self._execute(self.state.lose(key, reason, self.now)))

    def silence(self, key):
        """Let the server stop, as if its network were cut."""
        self.servers[key].alive = False

    def recorded(self, kind):
        """The recorded events of this kind."""
        return [event for event in self.records if isinstance(event, kind)]

    @property
    def members(self):
        return [each for each in self.servers.values() if each.alive and each.loaded]

    # Time -----------------------------------------------------------------------------------

    def after(self, seconds, event):
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self, until=lambda stage: False, seconds=1000.0):
        """Run until `until` is true or the coordinator finishes."""
        limit = self.now + seconds
        while self.finish is None and not until(self):
            assert self._events[0][0] <= limit, f"nothing has ended the run in {seconds} s"
            self.now, _, event = heapq.heappop(self._events)
            event()
            check_rows(self.state)
            self._schedule_tick()

    def _tick(self, at):
        if at == self._tick_at:
            self._tick_at = math.inf
            self._execute(self.state.tick(self.now))
            self._schedule_tick()

    def _schedule_tick(self):
        at = self.now + self.state.until_tick(self.now)
        if at < self._tick_at:
            self._tick_at = at
            self.after(at - self.now, lambda: self._tick(at))

    def _beat(self, server):
        if server.alive:
            self._post(server, Heartbeat())
            self.after(BEAT, lambda: self._beat(server))

    # Messages -------------------------------------------------------------------------------

    def _post(self, server, message):
        def arrive():
            if self.finish is None:
                self._execute(self.state.receive(server.key, message, self.now))

        self.after(LATENCY, arrive)

    def _execute(self, commands):
        for command in commands:
            match command:
                case Send(key, message):
                    server = self.servers[key]
                    self.after(LATENCY, lambda s=server, m=message: s.alive and self._serve(s, m))
                case Shuffle(epoch, without):
                    ready = lambda e=epoch, w=without: self.state.order_ready(e, w, self.now)  # noqa: E731
                    self.after(LATENCY, lambda ready=ready: self._execute(ready()))
                case Snapshot():
                    self.after(LATENCY, self._snapshot)
                case LoadServer(key, source):
                    self.after(LATENCY, lambda k=key, s=source: self._load(k, s))
                case Record(event):
                    self.records.append(event)
                    if isinstance(event, ServersMerged):
                        self._check_merged()
                case Revoke(number):
                    for server in self.servers.values():
                        if server.number == number:
                            server.alive = False
                case RollBack():
                    self.bad = None
                    for server in self.members:
                        server.merged, server.finite = Counter(self.model), True
                        server.change.clear()
                case Keep():
                    self.kept = Counter(self.model)
                case ShowMean(shown):
                    self.shown.append(shown)
                case Finish():
                    self.finish = command

    def _check_merged(self):
        """The coordinator knows how many rows are in the merged model."""
        epochs = self.state.epochs
        rows = epochs.number * self.state.plan.train_rows + epochs.rows.acknowledged
        if self.complete and not self.state.recovery.rollbacks.total:
            assert all(server.merged.total() == rows for server in self.members)

    def _snapshot(self):
        given = any(server.loaded for server in self.servers.values())
        if given and (self.failing_copies or not self.members):
            self.failing_copies = max(0, self.failing_copies - 1)
            self._execute(self.state.snapshot_failed(self.now))
            return
        if given:
            self.model = Counter(self.members[0].merged)
        self._execute(self.state.snapshot_taken(self.bad, self.now))

    def _load(self, key, source):
        server = self.servers[key]
        self.unloadable[key] -= 1
        if self.unloadable[key] >= 0:
            failure = "no room"
        elif source and not self.servers[source].alive:
            failure = f"{source} is gone"
        else:
            server.merged = Counter(self.servers[source].merged if source else self.model)
            failure = None
        self._execute(self.state.model_written(key, failure, self.now))

    # What a server does ---------------------------------------------------------------------

    def _serve(self, server, message):
        match message:
            case Welcome():
                server.number = message.worker
            case Servers(version, numbers, addresses):
                self._connect(server, version, numbers, addresses)
            case Lease():
                self._check_parts(server, message)
                server.leases.append(message)
                if len(server.leases) == 1:
                    self._compute(server)
            case Collect(merge):
                self._post(server, self._collect(server, merge))
            case Reduce():
                self._reduce(server, message)
            case Apply(merge):
                for number in self._taking_part:
                    server.merged += self._numbered(number).copied
                server.change -= server.copied
                self._post(server, Applied(merge, 0.004))
            case UseModel():
                server.change.clear()
                server.loaded = True
                self._post(server, Loaded())
            case Stop():
                server.alive = False

    def _check_parts(self, server, work):
        """The rows of a lease are of one part, which the server holds."""
        plan = self.state.plan
        sizes = plan.parts_of(work.task)
        ends = list(accumulate(sizes))
        if sizes:
            assert any(
                ends[part] - sizes[part] <= work.start < work.stop <= ends[part]
                for part in server.parts
            ), (work, server.parts)

    def _connect(self, server, version, numbers, addresses):
        """Each connection needs the addresses that the servers gave after the one before."""
        present = {each.number: each.address for each in self.servers.values()}
        assert all(present[n] == a for n, a in zip(numbers, addresses, strict=True))
        server.peers = numbers
        gone = [each.number for each in self.servers.values() if each.number in numbers]
        gone = [number for number in gone if not self._numbered(number).alive]
        self.connections += 1
        following = f"{server.key} after {version}".encode()

        def answer():
            server.address = following
            self._post(server, Connected(version, following, gone[0] if gone else -1))

        self.after(0.002, lambda: server.alive and answer())

    def _numbered(self, number):
        """The server that was given this number last."""
        return [each for each in self.servers.values() if each.number == number][-1]

    def _reduce(self, server, message):
        """Answer when all others could have taken part; if one is gone, name it."""
        others = [self._numbered(number) for number in message.numbers]
        if len(others) > 1:
            assert set(message.numbers) <= set(server.peers), "it is connected with all of them"
        self._taking_part = message.numbers
        self.reductions += 1
        collected = self._collect(server, message.merge) if message.collect else None
        gone = [each.number for each in others if not each.alive]
        unreachable = gone[0] if gone else -1
        attempt = message.merge, message.attempt
        answer = Reduced(*attempt, unreachable, (1.0,), collected)
        self.after(0.003, lambda: server.alive and self._post(server, answer))

    def _collect(self, server, merge):
        server.copied = Counter(server.change)
        squares = (1.0,) if server.finite else ()
        return Collected(merge, server.finished, 1, 64, server.finite, squares)

    def _compute(self, server):
        work = server.leases[0]
        rows = work.stop - work.start
        factor = 1.0 if work.task == "train" else 0.3

        def end():
            if not server.alive:
                return
            server.leases.popleft()
            if work.task == "train":
                server.finished += 1
                server.change.update((work.epoch, row) for row in range(work.start, work.stop))
            else:
                server.evaluated.append((work.start, work.stop))
            done = Done(work.number, rows, 1, rows * server.row_seconds, 0.5 * rows, 0, (1.0,))
            self._post(server, done)
            if server.leases:
                self._compute(server)

        self.after(rows * server.row_seconds * factor, end)
