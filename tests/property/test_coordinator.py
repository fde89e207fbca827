"""Every row once, whoever joins, leaves, stalls or dies; and the run always comes to its end."""

import math
from collections import Counter

from hypothesis import given, settings, strategies as st

from hogbatch.coordinator.commands import Finish, Quarantine, Record, Report, Revoke, Send
from hogbatch.coordinator.roster import MAX_MISSED_BEATS
from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import PolicySettings
from hogbatch.wire.messages import Failed, Stop, Welcome, Work
from tests.unit.coordinator.stage import Stage

TEST_ROWS = 300
PROFILE = ((16, 0.01), (64, 0.012), (256, 0.04))


class Audit:
    """A ledger of its own, kept from the commands alone."""

    def __init__(self, train_rows, epochs):
        self.train_rows = train_rows
        self.done = [Counter() for _ in range(epochs)]  # epoch → row → times acknowledged
        self.tested = Counter()
        self.generation = Counter()  # fence number → its value
        self.number = {}  # key → fence number of those attached
        self.held = {}  # lease → its Work
        self.leases = {}  # key → leases it was given
        self.beyond = {}  # key → rows of the smallest batch that was too large
        self.epochs_ended = 0
        self.left_out = 0  # rows that were quarantined
        self.size = train_rows  # of the epoch at hand
        self.finish = None

    def take_in(self, commands):
        for command in commands:
            assert self.finish is None or not isinstance(command, Finish | Report)
            match command:
                case Send(key, message):
                    self._sent(key, message)
                case Revoke(number):
                    self._departed(number)
                case Record("lease", fields):
                    start, stop = fields["rows"]
                    self.done[fields["epoch"]].update(range(start, stop))
                case Record("out_of_memory", {"from": size, "to": smaller}):
                    assert smaller < size
                case Quarantine(epoch, start, stop):
                    self.done[epoch].update(range(start, stop))
                    self.left_out += stop - start
                case Record("epoch", {"epoch": epoch, "rows": rows}):
                    assert rows == self.size
                    assert self.done[epoch] == Counter(range(self.size))
                    self.size = self.train_rows - self.left_out
                    self.epochs_ended += 1
                case Report(evaluation):
                    assert self.tested == Counter(range(TEST_ROWS))
                    assert evaluation.rows == self.trained
                    self.tested.clear()
                case Finish():
                    self.finish = command

    @property
    def trained(self):
        """Rows, in all epochs."""
        return sum(sum(rows.values()) for rows in self.done) - self.left_out

    def answered(self, key, work, done):
        """Worker `key` has done the first rows of `work`, or all, and is about to say so."""
        del self.held[work.lease]
        if work.task == "evaluate":
            self.tested.update(range(work.start, work.start + done.rows))
        if done.too_large:
            self.beyond[key] = min(self.beyond[key], work.batch_size, done.too_large)

    def _sent(self, key, message):
        match message:
            case Welcome(worker=number):
                assert number not in self.number.values()
                self.number[key], self.leases[key], self.beyond[key] = number, [], math.inf
            case Work():
                assert message.fence == self.generation[self.number[key]]
                assert not any(_overlap(message, other) for other in self.held.values())
                assert message.batch_size < self.beyond[key]
                self.held[message.lease] = message
                self.leases[key].append(message.lease)
            case _:
                assert key in self.number or isinstance(message, Stop)

    def _departed(self, number):
        self.generation[number] += 1
        (key,) = (key for key, held in self.number.items() if held == number)
        del self.number[key]
        for lease in self.leases.pop(key):
            self.held.pop(lease, None)


def _overlap(one, other):
    assert one.task == other.task  # nobody trains while somebody evaluates
    return one.start < other.stop and other.start < one.stop


class Chaos(Stage):
    """Workers that do whatever a random number says."""

    def __init__(self, epochs, **plan):
        self.audit = Audit(plan["train_rows"], epochs)
        self.names = (f"w{number}" for number in range(10_000))
        self.answers = []  # every Done said so far, by key
        self.memory = {}  # key → rows of the largest batch that fits; those not here have enough
        super().__init__(Adaptive(PolicySettings()), epochs=epochs, test_rows=TEST_ROWS, **plan)

    def _note(self, commands):
        self.audit.take_in(commands)
        return super()._note(commands)

    def pick(self, number, wanted=lambda worker: True):
        keys = [key for key, worker in self.state.workers.items() if wanted(worker)]
        return keys[number % len(keys)] if keys else None

    def act(self, event, number):
        """Let one thing happen, to the worker that `number` picks."""
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
        work = works.pop(number % len(works))  # not always the older one
        changes = {"seconds": number % 11 * 1e-3}
        batch = min(work.batch_size, work.stop - work.start)
        if batch > self.memory.get(key, batch):  # its memory may hold a few, and then no more
            rows = number % (work.stop - work.start)
            changes |= {"rows": rows, "updates": -(-rows // batch), "too_large": batch}
        done = self.answer(work, **changes)
        self.audit.answered(key, work, done)
        self.answers.append((key, done))
        self.receive(key, done)
        assert key in self.state.workers

    def _again(self, key, number):
        """A Done said before, by someone who may be gone."""
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
        """Out of memory with a size that may be true, or of an older lease, or a lie."""
        if not self.work[key]:
            return
        work = self.work[key].pop(0)
        rows, too_large = number % (work.stop - work.start + 1), 1 + number % 300
        done = self.answer(work, rows=rows, too_large=too_large)
        if kept := min(too_large, work.batch_size) > 1:
            self.audit.answered(key, work, done)
        self.receive(key, done)
        assert (key in self.state.workers) == kept

    def _die(self, key, number):
        held = list(self.work[key])
        self.lose(key)
        for work in held:  # its last words come too late
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
        """From now on everybody works; someone joins if nobody is left."""
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
                self.later(0.06)  # who was left out is asked again
        raise AssertionError("the run does not end")


EVENTS = [
    *("join", "join", "ready", "ready", "ready", "order", "order", "tick"),
    *["finish"] * 14,
    *("exhaust", "again", "lie", "die", "leave", "fail", "rejoin", "stall"),
]


@settings(deadline=None, max_examples=150)
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
        epochs,
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
    assert chaos.audit.finish == Finish("finished", "")
    assert chaos.audit.epochs_ended == epochs or chaos.audit.left_out == train_rows
    standing = chaos.state.totals(chaos.now)
    assert standing.rows == chaos.audit.trained
    assert standing.faults.rows_quarantined == chaos.audit.left_out
    everyone = standing.workers
    assert sum(worker.rows for worker in everyone) == chaos.audit.trained
    assert all(1 <= size <= 256 for worker in everyone for _, size in worker.batch_trace)
