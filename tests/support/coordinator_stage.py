"""A coordinator with a simulated clock, shuffler and workers, which a test controls."""

import math
from collections import defaultdict

from hogbatch.config.layers import DenseLayer
from hogbatch.coordinator.commands import Finish, Record, Revoke, RollBack, Send, Shuffle, Snapshot
from hogbatch.coordinator.plan import Identity, Limits, Plan, StoppingCriteria
from hogbatch.coordinator.state import Coordinator
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.fixed import Fixed
from hogbatch.policy.learning_rate import LearningRate
from hogbatch.wire.messages import (
    Done,
    Goodbye,
    Heartbeat,
    Hello,
    Lease,
    Optimizer,
    Ready,
    Stop,
    Welcome,
)
from tests.support.row_invariants import check_rows

PACKAGE, FINGERPRINT = "0.1.0", "abc123"


def make_plan(
    *,
    train_rows=1000,
    validation_rows=0,
    test_rows=0,
    cpu=(10, 10),
    gpu=(100, 100),
    learning_rate=None,
    lease_seconds=0.1,
    beta=1.0,
    start_with=1,
    lsh=None,
    checkpoint_seconds=math.inf,
    keeps_scores=False,
    **ending,
):
    """A plan for one epoch of `train_rows` rows, unless the arguments change that."""
    ending = {
        "epochs": 1,
        "max_seconds": None,
        "target_loss": None,
        "eval_seconds": 1e9,
        "keep": "best",
        "wait_for_workers": 60.0,
        **ending,
    }
    optimizer = Optimizer("sgd", 0.0, 0.0, 0.0, 0.0)
    return Plan(
        identity=Identity(PACKAGE, FINGERPRINT),
        training=Welcome(
            (DenseLayer(5, 1, "linear"),),
            "logistic",
            optimizer,
            "delta",
            1,
            "root",
            "bfloat16",
            lsh,
        ),
        limits=Limits(cpu, gpu),
        stopping=StoppingCriteria(**ending),
        learning_rate=learning_rate or LearningRate(0.1),
        lease_seconds=lease_seconds,
        train_rows=train_rows,
        validation_rows=validation_rows,
        test_rows=test_rows,
        keeps_scores=keeps_scores,
        beta=beta,
        start_with=start_with,
        checkpoint_seconds=checkpoint_seconds,
    )


class Stage:
    """Simulates the loop and the workers; checks the coordinator's invariants after each event."""

    def __init__(self, *workers, policy=None, **plan):
        """`workers` have joined and are ready, and the row orders are written."""
        self.state = Coordinator(make_plan(**plan), policy or Fixed(PolicySettings()))
        self.now = 0.0
        self.seconds_per_row = 1e-3
        self.said = []  # every command so far
        self.work = defaultdict(list)  # key → Lease messages it has not answered
        self.numbers = {}  # key → fence number of each attached worker
        self.orders = []  # Shuffles to carry out
        self.bad = None  # where the model is not finite
        self.unwritable = None  # why checkpoints fail
        self.snapshots = []  # commanded, not taken yet
        self.at_once = True  # snapshots are taken as soon as they are commanded
        self._note(self.state.begin(self.now))
        if workers:
            self.attach(*workers)

    # Workers --------------------------------------------------------------------------------

    def hello(self, key, device="cpu", threads=1, pid=1, package=PACKAGE, fingerprint=FINGERPRINT):
        return self.receive(key, Hello(device, device, threads, pid, package, fingerprint))

    def ready(self, key, profile=(), **teams):
        return self.receive(key, Ready(profile, **teams))

    def attach(self, *keys, teams=1, members=1, profile=(), **hello):
        """Let workers join and become ready; write all row orders."""
        commands = []
        for key in keys:
            commands += self.hello(key, **hello)
            commands += self.ready(key, profile, teams=teams, members=members)
        return commands + self.shuffle()

    def done(self, key, **changes):
        """Worker `key` finishes its oldest lease."""
        return self.receive(key, self.answer(self.work[key].pop(0), **changes))

    def answer(self, work, **changes):
        rows = work.stop - work.start
        fields = {
            "lease": work.number,
            "rows": rows,
            "updates": -(-rows // work.batch_size),
            "seconds": rows * self.seconds_per_row,
            "loss": 0.5 * rows,
            "skipped": 0,
            "metric_sums": (),
            **changes,
        }
        return Done(**fields)

    def goodbye(self, key):
        return self.receive(key, Goodbye())

    def work_on(self, **changes):
        """Finish all leases and shuffles until no more follow; return the commands."""
        before = len(self.said)
        while any(self.work.values()) or self.orders or self._later_work():
            self.shuffle()
            for key in [key for key, works in self.work.items() if works]:
                self.now += self.seconds_per_row
                self.done(key, **changes)
        return self.said[before:]

    def _later_work(self):
        """Let time pass until workers without leases are considered again; whether one has work."""
        self.later(0.06)
        return any(self.work.values())

    # Loop -----------------------------------------------------------------------------------

    def receive(self, key, message):
        return self._note(self.state.receive(key, message, self.now))

    def lose(self, key, reason="killed"):
        return self._note(self.state.lose(key, reason, self.now))

    def shuffle(self):
        """Answer every Shuffle so far."""
        commands = []
        while self.orders:
            asked = self.orders.pop(0)
            commands += self._note(self.state.order_ready(asked.epoch, asked.without, self.now))
        return commands

    def copy(self):
        """Take every snapshot so far, and write the checkpoints among them."""
        commands = []
        while self.snapshots:
            snapshot = self.snapshots.pop(0)
            commands += self._note(self.state.snapshot_taken(self.bad, self.now))
            if snapshot.saved is not None and not self.bad:
                commands += self._note(self.state.checkpoint_written(self.unwritable, self.now))
        return commands

    def measured(self, **metrics):
        """Answer the last Measure."""
        return self._note(self.state.measured(metrics, self.now))

    def later(self, seconds, silent=()):
        """Let time pass in steps of up to 1 s; all workers except `silent` send heartbeats."""
        commands, until = [], self.now + seconds
        while self.now < until:
            self.now = min(self.now + 1.0, until)
            for key in [key for key in self.state.workers if key not in silent]:
                commands += self.receive(key, Heartbeat())
            commands += self._note(self.state.tick(self.now))
        return commands

    def interrupt(self):
        return self._note(self.state.interrupt(self.now))

    def abandon(self, reason):
        return self._note(self.state.abandon(reason, self.now))

    def _note(self, commands):
        check_rows(self.state)
        self.said += commands
        for command in commands:
            match command:
                case Send(key, Welcome(worker=number)):
                    self.numbers[key] = number
                case Send(key, Lease() as work):
                    self.work[key].append(work)
                case Send(key, Stop()):
                    self.work.pop(key, None)
                case Revoke(number):
                    self._forget(number)
                case Shuffle():
                    self.orders.append(command)
                case Snapshot():
                    self.snapshots.append(command)
                case RollBack():
                    self.bad = None
        return [*commands, *self.copy()] if self.at_once else commands

    def _forget(self, number):
        for key in [key for key, held in self.numbers.items() if held == number]:
            del self.numbers[key]
            self.work.pop(key, None)

    # What was commanded ---------------------------------------------------------------------

    @property
    def finish(self):
        """The end of the run, or None."""
        return next((command for command in self.said if isinstance(command, Finish)), None)


def works(commands):
    """The leases among `commands`, as (key, Lease) in order."""
    return [(c.worker, c.message) for c in commands if is_send(c, Lease)]


def of_kind(commands, kind):
    return [command for command in commands if isinstance(command, kind)]


def is_send(command, kind):
    return isinstance(command, Send) and isinstance(command.message, kind)


def records(commands, kind):
    """The recorded events of this kind."""
    return [c.event for c in commands if isinstance(c, Record) and isinstance(c.event, kind)]
