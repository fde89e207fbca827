"""Every row is trained on exactly once whatever the workers do, and every run ends."""

from collections import Counter
from itertools import count

from hypothesis import given, strategies as st

from hogbatch.coordinator.commands import Finish, Kill, Revoke, Send
from hogbatch.coordinator.roster import MAX_MISSED_BEATS
from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import PolicySettings
from hogbatch.wire.messages import Failed, Goodbye, Hello, Stop
from tests.simulation.audit import Audit
from tests.support.coordinator_stage import Stage, make_plan
from tests.support.property_tests import max_examples

TEST_ROWS = 300
PROFILE = ((16, 0.01), (64, 0.012), (256, 0.04))


class Chaos(Stage):
    """Workers that act at random; the audit checks every command."""

    def __init__(self, **plan):
        plan["validation_rows"] = TEST_ROWS
        self.audit = Audit(make_plan(**plan))
        self.fences = Counter()
        self.new_pids = count(1)
        self.pids = {}  # key → pid of the process that said Hello last, while it is alive
        self.names = (f"w{number}" for number in range(10_000))
        self.answers = []  # every Done said so far, by key
        self.memory = {}  # key → rows of the largest batch that fits; those not here have enough
        super().__init__(policy=Adaptive(PolicySettings()), **plan)

    def fence(self, number):
        return self.fences[number]

    def reachable(self, key):
        return key in self.pids

    def hello(self, key, **changes):
        """A new process, even if `key` has said Hello before."""
        return super().hello(key, pid=next(self.new_pids), **changes)

    def receive(self, key, message):
        if isinstance(message, Hello):
            self.pids[key] = message.pid
        elif isinstance(message, Failed | Goodbye):
            self.pids.pop(key, None)
        self.audit.received(key, message)
        return super().receive(key, message)

    def lose(self, key, reason="killed"):
        self.pids.pop(key, None)
        return super().lose(key, reason)

    def _note(self, commands):
        for command in commands:
            self.audit.commanded(command, self)
            match command:
                case Revoke(number):
                    self.fences[number] += 1
                case Kill(pid):
                    self.pids = {key: held for key, held in self.pids.items() if held != pid}
        return super()._note(commands)

    def pick(self, number, wanted=lambda worker: True):
        keys = [key for key, worker in self.state.workers.items() if wanted(worker)]
        return keys[number % len(keys)] if keys else None

    def act(self, event, number):
        """Apply `event` to the worker that `number` picks."""
        self.now += number % 7 * 0.02
        self._note(self.state.tick(self.now))  # as the loop does after every message
        key = self.pick(number)
        if event == "join":
            device = "gpu" if number % 3 == 0 else "cpu"
            name = next(self.names)
            if number % 2:
                self.memory[name] = 1 + number % 50
            self.hello(name, device=device, threads=1 + number % 4 if key else 1)
        elif event == "order":
            self.shuffle()
        elif event == "tick":
            self.later(0.01)
        elif key is not None:
            getattr(self, "_" + event)(key, number)

    def _ready(self, key, number):
        key = self.pick(number, lambda worker: not worker.ready)
        if key is not None:
            self.ready(key, PROFILE)

    def _finish(self, key, number):
        key = self.pick(number, lambda worker: worker.leases)
        if key is None:
            return
        works = self.work[key]
        work = works.pop(number % len(works))  # not always the oldest
        changes = {"seconds": number % 11 * 1e-3}
        batch = min(work.batch_size, work.stop - work.start)
        if batch > self.memory.get(key, batch):  # some rows may fit before memory runs out
            rows = number % (work.stop - work.start)
            changes |= {"rows": rows, "updates": -(-rows // batch), "too_large": batch}
        done = self.answer(work, **changes)
        self.answers.append((key, done))
        self.receive(key, done)
        assert key in self.state.workers

    def _again(self, key, number):
        """Repeat a Done of a worker that may be gone."""
        if self.answers:
            key, done = self.answers[number % len(self.answers)]
            rows = self.state.progress.rows
            self.receive(key, done)
            assert self.state.progress.rows == rows

    def _lie(self, key, number):
        if self.work[key]:
            work = self.work[key][0]
            self.receive(key, self.answer(work, rows=work.stop - work.start + 1 + number))
            assert key not in self.state.workers

    def _exhaust(self, key, number):
        """Report an out-of-memory batch size that may be right, outdated or false."""
        if not self.work[key]:
            return
        work = self.work[key].pop(0)
        rows, too_large = number % (work.stop - work.start + 1), 1 + number % 300
        done = self.answer(work, rows=rows, too_large=too_large)
        kept = min(too_large, work.batch_size) > 1
        self.receive(key, done)
        assert (key in self.state.workers) == kept

    def _die(self, key, number):
        held = list(self.work[key])
        self.lose(key)
        for work in held:  # its last messages arrive too late
            assert self.receive(key, self.answer(work)) == [Send(key, Stop())]

    def _leave(self, key, number):
        self.goodbye(key)

    def _fail(self, key, number):
        self.receive(key, Failed("broken"))

    def _rejoin(self, key, number):
        self.hello(key)

    def _stall(self, key, number):
        self.later(MAX_MISSED_BEATS + 0.1, silent=[key])
        assert key not in self.state.workers

    def come_to_the_end(self):
        """Let all workers work until the run ends; add one if there is none."""
        if not self.state.workers:
            self.hello(next(self.names))
        for key in [key for key, worker in self.state.workers.items() if not worker.ready]:
            self.ready(key, PROFILE)
        self.shuffle()
        for turn in range(10_000):
            if self.audit.finish:
                return
            self.shuffle()
            self._finish(None, turn)
            if not any(self.work.values()):
                self.later(0.06)  # workers without a lease are asked again
        raise AssertionError("the run does not end")


EVENTS = [
    *("join", "join", "ready", "ready", "ready", "order", "order", "tick"),
    *["finish"] * 14,
    *("exhaust", "again", "lie", "die", "leave", "fail", "rejoin", "stall"),
]


@max_examples(75)
@given(
    events=st.lists(
        st.tuples(st.sampled_from(EVENTS), st.integers(0, 10**6)), min_size=50, max_size=200
    ),
    train_rows=st.integers(1, 3000),
    epochs=st.integers(1, 3),
    eval_seconds=st.sampled_from([0.05, 0.5, 1e9, None]),
    by_epoch=st.booleans(),
)
def test_every_row_is_acknowledged_once_whoever_comes_and_goes(
    events, train_rows, epochs, eval_seconds, by_epoch
):
    chaos = Chaos(
        epochs=epochs,
        train_rows=train_rows,
        cpu=(1, 16),
        gpu=None,
        eval_seconds=eval_seconds,
        by_epoch=by_epoch,
        wait_for_workers=1e9,
    )
    chaos.attach("first", "second")
    for event, number in events:
        chaos.act(event, number)
    chaos.come_to_the_end()
    audit = chaos.audit
    assert audit.finish == Finish("finished")
    assert audit.epoch == epochs or audit.quarantined == train_rows
    standing = chaos.state.totals(chaos.now)
    assert standing.rows == audit.rows
    assert standing.faults.rows_quarantined == audit.quarantined
    assert sum(worker.rows for worker in standing.workers) == audit.rows
    assert all(1 <= size <= 256 for worker in standing.workers for _, size in worker.batch_trace)
