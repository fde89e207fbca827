"""Reading the events of a run while it writes them, and its other files."""

import pytest

from hogbatch.errors import DataError, UsageError
from hogbatch.events.event import CheckpointWritten, OutOfMemory, Resumed
from hogbatch.events.event_log import MIN_EVENTS, MIN_LAST_EVENTS, EventLog, read_on
from hogbatch.events.state import RunState
from hogbatch.views.status.run_files import RunFollower, expect_run
from tests.support.run_events import TRAINING, ended, evaluation, lease, lines_of, started

TEXT, NEXT = lines_of(*TRAINING), lines_of(lease(3.0, 0, 500))


def rows(follower):
    return follower.look().run.rows.value


def test_each_event_is_read_once_and_an_incomplete_line_when_it_is_complete(write_run):
    run_dir = write_run()
    path, follower = run_dir / "events.jsonl", RunFollower(run_dir)
    assert rows(follower) == 0
    for text, expected in ((TEXT, 1000), (TEXT + NEXT[:9], 1000), (TEXT + NEXT, 1500)):
        path.write_text(text)
        assert rows(follower) == rows(follower) == expected


def test_a_run_that_is_resumed_replaces_the_incomplete_line_of_its_predecessor(write_run):
    run_dir = write_run()
    path, follower = run_dir / "events.jsonl", RunFollower(run_dir)
    path.write_text(TEXT + NEXT[:9])
    assert rows(follower) == 1000
    log = EventLog(path, append=True, now=lambda: 3.0)
    log.write(Resumed("c/1", 0, [], 400, 1.0))
    log.close()
    assert rows(follower) == 400


@pytest.mark.parametrize("leases", [0, 50], ids=["shorter", "longer"])
def test_a_run_that_replaces_another_one_is_shown_alone(write_run, leases):
    run_dir = write_run(*TRAINING, ended())
    path, follower = run_dir / "events.jsonl", RunFollower(run_dir)
    assert follower.look().condition.over
    path.unlink()
    assert rows(follower) == 1000, "it is being replaced"
    path.write_text(lines_of(started(data="w8a")) + NEXT * leases)
    run = follower.look().run
    assert (run.started.data, run.workers) == ("w8a", [])


def test_a_new_run_that_begins_alike_is_recognised_by_its_length(write_run):
    run_dir = write_run(*TRAINING)
    follower = RunFollower(run_dir)
    assert rows(follower) == 1000
    (run_dir / "events.jsonl").write_text("".join(TEXT.splitlines(keepends=True)[:4]))
    assert rows(follower) == 400


@pytest.mark.parametrize("damaged", ["{", '{"event": "x"}', "\xff"])
def test_a_damaged_line_is_counted_and_left_out(write_run, damaged):
    run_dir = write_run()
    (run_dir / "events.jsonl").write_bytes(f"{TEXT}{damaged}\n{NEXT}".encode("latin-1"))
    run = RunFollower(run_dir).look().run
    assert (run.damaged, run.rows.value) == (1, 1500)


def test_a_file_that_cannot_be_read_is_named(write_run):
    run_dir = write_run()
    (run_dir / "events.jsonl").mkdir()
    with pytest.raises(DataError, match=r"events\.jsonl: cannot read the events: Is a directory"):
        RunFollower(run_dir).look()


@pytest.fixture
def long_log(write_run):
    """A run with a long log, which contains its state."""
    run_dir = write_run()
    log = EventLog(run_dir / "events.jsonl", now=lambda: 3.0, combine=False)
    for event in (*TRAINING, CheckpointWritten(0, 400, 1.0), OutOfMemory("cpu-0", 16, 8)):
        log.write(event)
    for n in range(MIN_EVENTS // 100):
        log.write(lease(3.0 + n / 100, 0, 64, staleness=0.5))
    log.write(evaluation(40.0, 2000, float("nan")))
    log.close()
    return run_dir


def test_of_a_long_log_only_the_end_is_read_and_gives_the_same_run(long_log):
    path = long_log / "events.jsonl"
    with path.open("rb") as file:
        run, same = RunFollower(long_log).look().run, RunState()
        read_on(file, same, 0)
    assert repr(run) == repr(same), "nan is not equal to itself"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"?" * len(lines[1]), *lines[2:]]))
    assert RunFollower(long_log).look().run.damaged == 0


def test_of_a_run_that_has_ended_only_the_end_is_read(write_run):
    path = write_run() / "events.jsonl"
    log = EventLog(path, now=lambda: 3.0, combine=False)
    for event in (*TRAINING, *[lease(2.0, 0, 1)] * (MIN_LAST_EVENTS // 100), ended()):
        log.write(event)
    log.close()
    first, *others, state, last = path.read_bytes().splitlines(keepends=True)
    assert state.startswith(b'{"event": "state"') and last.startswith(b'{"event": "ended"')
    path.write_bytes(b"".join([first, *(b"?" * 9 + b"\n" for _ in others), state, last]))
    report = RunFollower(path.parent).look()
    assert (report.condition.state, report.run.history[0].rows) == ("finished", 1000)
    assert report.run.damaged == 0


def test_a_state_that_is_incomplete_or_of_another_version_is_not_used(long_log):
    path, expected = long_log / "events.jsonl", repr(RunFollower(long_log).look().run)
    text = path.read_bytes()
    path.write_bytes(text.replace(b'"of": "', b'"of": "9'))
    assert repr(RunFollower(long_log).look().run) == expected
    path.write_bytes(text[: text.rindex(b'"of"')])
    assert RunFollower(long_log).look().run.checkpoint_at == 1.0


def test_a_run_that_is_resumed_continues_with_the_state_of_its_log(long_log):
    before = RunFollower(long_log).look().run
    log = EventLog(long_log / "events.jsonl", append=True, now=lambda: 50.0, combine=False)
    log.write(lease(50.0, 0, 64))  # after the state, because the log has become long
    log.close()
    *_, state, last = (long_log / "events.jsonl").read_bytes().splitlines()
    assert state.startswith(b'{"event": "state"') and last.startswith(b'{"event": "lease"')
    after = RunFollower(long_log).look().run
    assert after.rows.value == before.rows.value + 64 and after.history[0] == before.history[0]


def test_a_directory_that_is_no_run_is_named_with_advice(write_run, tmp_path):
    run_dir = write_run()
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("")
    for path, found in (
        (tmp_path / "gone", "does not exist; expected a run directory"),
        (tmp_path / "file", "is a file; expected a run directory"),
        (tmp_path / "other", "is not a run directory .*; give another directory"),
        (tmp_path, "is not a run directory .*; hogbatch runs"),
    ):
        with pytest.raises(UsageError, match=f"^{path} {found}"):
            expect_run(path)
    expect_run(run_dir)


def test_a_path_is_quoted_in_the_suggested_command(write_run, tmp_path):
    (tmp_path / "my runs").mkdir()
    write_run(name="my runs/a")
    with pytest.raises(UsageError, match=f"; hogbatch runs '{tmp_path}/my runs' lists"):
        expect_run(tmp_path / "my runs")
