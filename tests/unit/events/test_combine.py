"""The size of a log, and the state that follows from events that were combined."""

import pytest

from hogbatch.events.combine import BURST, BYTES_PER_S
from hogbatch.events.event import (
    CheckpointBegins,
    EpochEnded,
    EvaluationBegins,
    Event,
    LeaseDone,
    LeasesDone,
    ServersMerged,
    WorkerLeft,
    WorkerParked,
    WorkerUnparked,
    read_event,
)
from hogbatch.events.event_log import EventLog
from tests.support.run_events import (
    ended,
    evaluation,
    joined,
    lease,
    own_worker,
    ready,
    server_workers,
    started,
    state_after,
)

MINUTES = 2


class Clock:
    """The clock of a log: time in minutes, or the time of the last event."""

    now = 0.0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(tmp_path, clock):
    log = EventLog(tmp_path / "events.jsonl", now=lambda: clock.now)
    yield log
    log.close()


@pytest.fixture
def written(tmp_path, log):
    return lambda: events_of(tmp_path / "events.jsonl")


def events_of(path):
    """The events in a log, without its states."""
    events = map(read_event, path.read_bytes().splitlines())
    return [event for event in events if type(event) is not Event]


def leases(seconds, names, rows=64):
    return [lease(seconds, 0, rows, name, updates=2, busy_seconds=0.01) for name in names]


def of_one_worker():
    """200 leases in a second."""
    for n in range(1, 200 * 60 * MINUTES):
        yield from leases(n / 200, ["w0"])


def of_many_workers():
    for n in range(1, 60 * MINUTES):
        yield from leases(float(n), [f"w{n}" for n in range(200)])


def of_short_epochs():
    """Each with an evaluation, a merge of servers, and a decision about who trains."""
    for n in range(1, 100 * 60 * MINUTES // 3):
        now = n / 33
        yield from leases(now, ["w0", "w1"], 500)
        yield EpochEnded(n, 1000)
        yield ServersMerged(n, ["w0", "w1"], [0.5, 0.5], 1000, 0.1, 0.1)
        yield server_workers("w0", own_worker(rows=n))
        yield (WorkerParked("w1", "slow") if n % 2 else WorkerUnparked("w1"))
        yield EvaluationBegins(rows=100)
        yield evaluation(now, 1000 * n, 0.3 + (n - 2000) ** 2 / 1e7)


@pytest.mark.parametrize("events", [of_one_worker, of_many_workers, of_short_epochs])
def test_a_log_is_short_at_any_speed_and_gives_the_same_state(
    clock, log, written, tmp_path, events
):
    first = [started(), *[make(f"w{n}") for n in range(200) for make in (joined, ready)]]
    given = []
    for event in (*first, *events(), ended(rows=1)):
        clock.now = getattr(event, "seconds", None) or clock.now
        given.append(log.write(event))
    log.close()
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines(keepends=True)
    size = sum(len(line) for line in lines if not line.startswith(b'{"event": "state"'))
    last = 2 * 200 * 200  # bytes of the events of all workers, at most two times
    assert size < BURST + 60 * MINUTES * BYTES_PER_S + last
    state, expected = state_after(*written()), state_after(*given)
    assert (state.seconds, state.rows.value) == (expected.seconds, expected.rows.value)
    assert (state.best, state.history[-1:]) == (expected.best, expected.history[-1:])
    for worker, same in zip(state.workers, expected.workers, strict=True):
        assert worker.rows.value == same.rows.value and worker.updates.value == same.updates.value
        assert (worker.state, worker.batch_size) == (same.state, same.batch_size)
        assert [each.rows.value for each in worker.workers] == [
            each.rows.value for each in same.workers
        ]


def fill(log):
    """Use all room."""
    for _ in range(BURST // 50):
        log.write(joined("w9"))


def test_a_few_events_are_written_at_once_as_they_are(log, written):
    events = [log.write(event) for event in (started(), joined("w0"), *leases(1.0, ["w0", "w0"]))]
    assert written() == events


def test_what_was_held_back_is_written_when_there_is_room(clock, log, written):
    fill(log)
    before = len(written())
    for n in range(3):
        clock.now = n / 100
        log.write(lease(n / 100, 0, 64, "w0", staleness=float(n), updates=2))
    log.write_due()
    assert len(written()) == before
    clock.now = 300.0
    log.write_due()
    (event,) = written()[before:]
    assert event == LeasesDone(
        at=0.02,
        seconds=0.02,
        epoch=0,
        leases=3,
        rows=192,
        worker="w0",
        batch_size=16,
        updates=6,
        staleness=1.0,
    )


@pytest.mark.parametrize(
    ("last", "names"),
    [
        (WorkerLeft(worker="w0", reissued=[]), ["lease", "worker_left"]),
        (CheckpointBegins(0, 64, 1.0), ["lease", "lease", "epoch", "checkpoint_begins"]),
        (ended(), ["lease", "lease", "epoch", "ended"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_leases_of_a_worker_are_before_its_end_and_all_before_a_checkpoint(
    log, written, last, names
):
    fill(log)
    before = len(written())
    for event in (*leases(1.0, ["w0", "w1"]), EpochEnded(0, 128), last):
        log.write(event)
    assert [event.name for event in written()[before:]] == names


def test_every_event_is_written_on_request(tmp_path):
    log = EventLog(tmp_path / "all.jsonl", now=lambda: 1.0, combine=False)
    for event in leases(1.0, ["w0"] * 1000):
        log.write(event)
    log.close()
    events = events_of(tmp_path / "all.jsonl")
    assert sum(isinstance(event, LeaseDone) for event in events) == 1000
    assert all(type(event) in (LeaseDone, Event) for event in events), "Event: a state"
