"""The report of one run: its condition, its text and its object for JSON."""

import json
import os

import pytest

from hogbatch.errors import DataError
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
from tests.unit.views.status.conftest import (
    GONE,
    ON_SERVERS,
    START,
    TRAINING,
    ended,
    evaluation,
    event,
    joined,
    lease,
    lines_of,
    own_worker,
    ready,
    server_workers,
    started,
)

SUMMARY = {
    "status": "finished",
    "reason": "",
    "train_seconds": 2.0,
    "epochs": 2.0,
    "rows": 2000,
    "saved": None,
    "workers": [],
    "history": [],
}


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
        ((started(process={}), *TRAINING[1:]), "training", "cannot be seen"),
        ((*TRAINING, ended()), "finished", "all epochs"),
        ((*TRAINING, ended("finished", "not improved")), "finished", "not improved"),
        ((*TRAINING, ended("target")), "finished", "target loss"),
        ((*TRAINING, ended("time")), "finished", "maximum training time"),
        ((*TRAINING, ended("stopped", "interrupted")), "stopped", "interrupted"),
        ((*TRAINING, ended("failed", "no workers")), "failed", "no workers"),
    ],
)
def test_the_condition_of_a_run(look, events, state, reason):
    condition = look(*events).condition
    assert condition.state == state and reason in condition.reason


def test_a_killed_run_with_a_checkpoint_can_be_resumed(look):
    checkpoint = event(CheckpointWritten, 0, 400, 1.0)
    report = look(started(process=GONE), *TRAINING[1:], checkpoint)
    assert "--resume RUN_DIR" in report.condition.reason
    assert "left" not in text(report)


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


def test_a_run_without_events_has_its_summary(look):
    report = look(summary=json.dumps(SUMMARY))
    assert report.condition.state == "finished" and report.run.epochs == 2.0


@pytest.mark.parametrize("content", ["{", "[]", "{}", json.dumps(SUMMARY | {"history": [1]})])
def test_a_damaged_summary_is_one_sentence(look, content):
    with pytest.raises(DataError, match=r"summary\.json: "):
        look(summary=content)


def test_the_whole_report(look):
    report = look(*TRAINING, lease(3.0, 0, 700), event(WorkerUnparked, "cpu-0"))
    lines = text(report).splitlines()
    assert lines[0].startswith("run       /")
    assert text(report, width=1000).splitlines()[0].endswith("/run")
    at = lines.index("state     training")
    assert lines[at + 1 : -1] == [
        "data      a9a: 1,000 training rows, 100 test rows, sparse",
        "network   123-32-1, loss logistic",
        "progress  3.00 s  epoch 1.70 of 10  567 rows/s  at most 15 s left",
        "last      2.00 s  epoch 1.00  train 0.5000  test 0.4000  accuracy 0.8000",
        "best      2.00 s  epoch 1.00  train 0.5000  test 0.4000  accuracy 0.8000",
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
    lost = event(WorkerLost, "server-0", "its machine died")
    report = look(*ON_SERVERS, lost)
    assert "  cpu-0" not in text(report) and "  gpu-0" in text(report)
    own = report_fields(report)["workers"][0]["workers"]
    assert [each["state"] for each in own] == ["left", "left"]


def test_shares_of_workers_whose_server_has_reported_less_are_not_above_one(look):
    ahead = server_workers("server-0", own_worker(rows=6400))
    worker = report_fields(look(*ON_SERVERS, ahead))["workers"][0]["workers"][0]
    assert (worker["updates"], worker["update_share"]) == (100, 1.0)


def crowd():
    """The events of a run with long numbers, texts and many workers."""
    events = [started(data="/data/" + "long-" * 30 + "name.csv", epochs=None, max_seconds=1e6)]
    for number in range(12):
        name, device = (f"gpu-{number}", "gpu:host") if number % 2 else (f"cpu-{number}", "cpu:128")
        events += [joined(name, device), ready(name, 65536)]
        wide = {"updates": 12_345_678, "batch_size": 65536}
        events.append(lease(12345.6, 0, 10**9, name, **wide, staleness=1234.5))
    util = {f"gpu-{number}": 1.23 for number in range(12)}
    events.append(evaluation(12345.6, 10**10, 0.4, utilization=util))
    events.append(event(WorkerParked, "gpu-1", "because " * 30))
    for number in range(11):
        events.append(event(WorkerLost, f"cpu-{number - number % 2}", "x" * 200))
    return events


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_terminal(look, tmp_path, width, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = report_lines(look(*crowd()), width)
    table = [line for line in lines if line.startswith(("worker", "cpu-", "gpu-"))]
    assert len(table) == 13
    if width >= 80:
        assert max(map(len, lines)) <= width
    assert max(len(line) for line in lines if line not in table) <= width


def test_of_many_workers_that_have_left_the_last_ones_are_shown(look):
    events = []
    for number in range(20):
        name = f"cpu-{number}"
        events += [joined(name), event(Goodbye, name)]
    lines = report_lines(look(started(), *events, joined("cpu-20")))
    shown = [line.split()[0] for line in lines if line.startswith("cpu-")]
    assert shown == [f"cpu-{number}" for number in range(12, 21)]
    assert "and 12 more workers that have left" in lines


def test_control_characters_of_files_are_escaped(look):
    report = look(started(data="a\x1b[31m"), joined("cpu\x1b[0m", "cpu\n"))
    assert "\x1b" not in text(report) and r"a\x1b[31m" in text(report)


def test_a_rehearsal_is_marked(look):
    shown = text(look(started(rehearsed="h100-16cores"), joined()))
    assert "rehearsed on h100-16cores: all times are simulated" in shown


def test_damaged_lines_are_counted(look):
    assert "1 lines of events.jsonl, ignored" in text(look(*TRAINING, ready("cpu-7")))


def test_json_has_the_content_of_the_report(look):
    report = look(*TRAINING)
    fields = json.loads(json.dumps(report_fields(report)))
    assert fields["state"] == "training" and fields["best"]["test_loss"] == 0.4
    assert fields["rows"] == 1000 and fields["epochs"] == 1.0 and fields["seconds_left"] == 18.0
    (worker,) = fields["workers"]
    assert (worker["name"], worker["updates"], worker["update_share"]) == ("cpu-0", 8, 1.0)
    assert worker["utilization"] == 0.5
    assert [each["text"] for each in fields["events"]][-1] == "cpu-0 is ready, batch size 16"


def test_json_has_the_workers_inside_each_server(look):
    one, two = json.loads(json.dumps(report_fields(look(*ON_SERVERS))))["workers"]
    assert (one["name"], one["rows"], one["other_workers"]) == ("server-0", 1280, 3)
    assert [each["name"] for each in one["workers"]] == ["cpu-0", "cpu-1"]
    (worker,) = two["workers"]
    assert (worker["rows"], worker["update_share"], worker["busy"]) == (2560, 0.5, 0.5)
    assert worker["rows_per_second"] == 1280.0 and worker["workers"] == []


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3.21, "3.2 s"), (59.4, "59 s"), (250, "4 min 10 s"), (7500, "2 h 5 min"), (60, "1 min 0 s")],
)
def test_durations(seconds, shown):
    assert duration(seconds) == shown
