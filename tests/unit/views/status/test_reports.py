"""The report of one run: its condition, its text and its object for JSON."""

import json
import os

import pytest

from hogbatch.events.event import (
    CheckpointWritten,
    Goodbye,
    WorkerCompiles,
    WorkerLost,
    WorkerParked,
    WorkerUnparked,
)
from hogbatch.views.status.run_files import RunFollower
from hogbatch.views.status.text import duration, report_fields, report_lines
from tests.support.run_events import (
    GONE,
    ON_SERVERS,
    START,
    TRAINING,
    ended,
    event,
    joined,
    lease,
    lines_of,
    own_worker,
    ready,
    server_workers,
    started,
)


@pytest.fixture
def look(write_run):
    return lambda *events, **files: RunFollower(write_run(*events, **files)).look()


def text(report, width=80):
    return "\n".join(report_lines(report, width))


@pytest.mark.parametrize(
    ("events", "state", "reason"),
    [
        ((), "preparing", "no events yet"),
        (TRAINING[:1], "waiting", "for workers"),
        ((*TRAINING[:2], event(WorkerCompiles, "cpu-0")), "waiting", "compile"),
        (TRAINING[:3], "waiting", "to be ready"),
        (TRAINING, "training", ""),
        ((started(process=GONE), *TRAINING[1:]), "killed?", "it has no checkpoint"),
        ((started(process=GONE), CheckpointWritten(0, 400, 1.0)), "killed?", "--resume RUN_DIR"),
        ((started(process={}), *TRAINING[1:]), "training", "cannot be seen"),
        ((*TRAINING, ended()), "finished", "all epochs"),
        ((*TRAINING, ended("target")), "finished", "target loss"),
        ((*TRAINING, ended("stopped", "interrupted")), "stopped", "interrupted"),
    ],
)
def test_the_condition_of_a_run(look, events, state, reason):
    condition = look(*events).condition
    assert condition.state == state and reason in condition.reason


def test_a_bug_is_a_failure_that_names_the_crash_report(write_run):
    run_dir = write_run(started(process=GONE), *TRAINING[1:])
    (run_dir / "crash.txt").write_text("Traceback")
    os.utime(run_dir / "crash.txt", (START + 5, START + 5))
    condition = RunFollower(run_dir).look().condition
    assert condition == ("failed", f"a bug; see {run_dir / 'crash.txt'}")
    os.utime(run_dir / "crash.txt", (START - 5, START - 5))  # of the run that was resumed
    assert RunFollower(run_dir).look().condition.state == "killed?"


def test_what_a_coordinator_wrote_just_before_it_exited_is_read(write_run, monkeypatch):
    run_dir = write_run(started(process=GONE), *TRAINING[1:])
    follower, running = RunFollower(run_dir), RunFollower._is_running

    def exits_meanwhile(self):
        with (run_dir / "events.jsonl").open("a") as file:
            file.write(lines_of(ended()))
        return running(self)

    monkeypatch.setattr(RunFollower, "_is_running", exits_meanwhile)
    assert follower.look().condition.state == "finished"


def test_the_whole_report(look):
    report = look(*TRAINING, lease(3.0, 0, 700), event(WorkerUnparked, "cpu-0"))
    lines = text(report).splitlines()
    assert lines[0].startswith("run       /")
    assert text(report, width=1000).splitlines()[0].endswith("/run")
    at = lines.index("state     training")
    assert lines[at + 1 : -1] == [
        "data      a9a: 1,000 training rows, 100 validation rows, 50 test rows, sparse",
        "network   123-32-1, loss logistic",
        "progress  3.00 s  epoch 1.70 of 10  567 rows/s  at most 15 s left",
        "last      2.00 s  epoch 1.00  accuracy 0.8000  validation 0.4000  train 0.5000",
        "best      2.00 s  epoch 1.00  accuracy 0.8000  validation 0.4000  train 0.5000",
        "",
        "worker  device  batch  updates  share  rows/s  util.  stale",
        "cpu-0   cpu:2      16       12   100%     567    50%      -  trains",
        "",
        *(line for line in lines if "joined" in line),
        *(line for line in lines if "is ready" in line),
    ]
    assert lines[-1].endswith("  cpu-0 trains again")


def test_the_workers_of_each_server_are_beneath_it(look):
    lines = text(look(*ON_SERVERS)).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("worker "))
    assert lines[at : at + 7] == [
        "worker    device          batch  updates  share  rows/s  util.  stale",
        "server-0  host-a (cpu:4)    256       20    50%     640      -      -  trains",
        "  cpu-0   cpu:2              64       10    25%     320      -      -  trains",
        "  cpu-1   cpu:2              64       10    25%     320      -      -  trains",
        "  3 more",
        "server-1  host-b (gpu:0)    256       20    50%   1,280      -      -  trains",
        "  gpu-0   gpu                64       20    50%   1,280      -      -  trains",
    ]


def test_the_workers_of_a_server_that_is_lost_are_not_shown(look):
    report = look(*ON_SERVERS, event(WorkerLost, "server-0", "its machine died"))
    assert "  cpu-0" not in text(report) and "  gpu-0" in text(report)


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(look, tmp_path, width, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events = [started(data="/data/" + "long-" * 30 + "name.csv", epochs=None, max_seconds=1e6)]
    for name in (f"gpu-{number}" for number in range(12)):
        events += [joined(name, "gpu:host"), ready(name, 65536), WorkerParked(name, "x " * 99)]
        events.append(lease(12345.6, 0, 10**9, name, 65536, 12_345_678, staleness=1234.5))
    lines = report_lines(look(*events, WorkerLost("gpu-1", "x" * 200)), width)
    assert sum(line.startswith(("worker", "gpu-")) for line in lines) == 13
    assert max(map(len, lines)) <= width


def test_of_many_workers_that_have_left_the_last_ones_are_shown(look):
    names = [f"cpu-{number}" for number in range(20)]
    gone = (each for name in names for each in (joined(name), event(Goodbye, name)))
    lines = report_lines(look(started(), *gone, joined("cpu-20")))
    shown = [line.split()[0] for line in lines if line.startswith("cpu-")]
    assert shown == [*names[12:], "cpu-20"]
    assert "and 12 more workers that have left" in lines


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((started(data="a\x1b[31m"), joined("cpu\x1b[0m", "cpu\n")), r"a\x1b[31m"),
        ((started(rehearsed="h100"),), "rehearsed on h100: all times are simulated"),
        ((*TRAINING, ready("cpu-7")), "1 lines of events.jsonl, ignored"),
    ],
)
def test_text_is_escaped_and_what_is_unusual_is_mentioned(look, events, words):
    shown = text(look(*events))
    assert words in shown and "\x1b" not in shown


def test_results_that_were_saved_elsewhere_are_found(write_run, tmp_path):
    """The log of events could not be written either, so it has no end."""
    run_dir = write_run(started(process=GONE), *TRAINING[1:])
    folder = tmp_path / "other"
    (run_dir / "elsewhere").symlink_to(folder)
    assert RunFollower(run_dir).look().condition.state == "killed?", "they were removed"
    folder.mkdir()
    (folder / "summary.json").write_text('{"status": "target", "reason": "", "rows": 9}')
    report = RunFollower(run_dir).look()
    assert report.condition.state == "finished"
    assert f"results   in {folder}, because" in text(report, 1000)
    assert report_fields(report)["elsewhere"] == str(folder)


def test_json_has_the_content_of_the_report(look):
    fields = json.loads(json.dumps(report_fields(look(*TRAINING))))
    assert fields["state"] == "training" and fields["best"]["validation_loss"] == 0.4
    assert fields["elsewhere"] is None
    assert fields["rows"] == 1000 and fields["epochs"] == 1.0 and fields["seconds_left"] == 18.0
    assert fields["started"]["at"] == START and fields["started"]["data"] == "a9a"
    (worker,) = fields["workers"]
    assert (worker["name"], worker["updates"], worker["utilization"]) == ("cpu-0", 8, 0.5)
    assert [each["text"] for each in fields["events"]][-1] == "cpu-0 is ready, batch size 16"


def test_json_has_the_workers_inside_each_server(look):
    ahead = server_workers("server-1", own_worker("gpu-0", 6400))
    one, two = report_fields(look(*ON_SERVERS, ahead))["workers"]
    assert (one["name"], one["rows"], one["other_workers"]) == ("server-0", 1280, 3)
    assert [each["name"] for each in one["workers"]] == ["cpu-0", "cpu-1"]
    (worker,) = two["workers"]
    assert (worker["rows"], worker["rows_per_second"], worker["busy"]) == (6400, 3200.0, 0.5)
    assert (worker["updates"], worker["update_share"]) == (100, 1.0), "not above one"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3.21, "3.2 s"), (59.4, "59 s"), (250, "4 min 10 s"), (7500, "2 h 5 min"), (60, "1 min 0 s")],
)
def test_durations(seconds, shown):
    assert duration(seconds) == shown
