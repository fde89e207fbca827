"""Training on a folder whose files are divided among servers."""

import gzip
import json
import os
import signal

import pytest

from hogbatch.data.samples import SAMPLES
from hogbatch.events.event import (
    CheckpointWritten,
    Resumed,
    ServersMerged,
    Started,
    WorkerJoined,
    WorkerLost,
    WorkerReady,
)
from tests.integration.test_several_servers import LOCAL, check_that_rows_are_trained_on_once
from tests.support.fault_injection import ENDLESS, WITHIN_S

FILES = 6
# Rows of a9a: of each file, a fifth is for testing, and a tenth of the rest for validation.
TRAIN, VALIDATION, TEST = 23_447, 2_604, 6_510
ALONE = 3_252  # without test rows


def write_parts(folder, lines, files=FILES):
    folder.mkdir()
    for number in range(files):
        (folder / f"part-{number}.svm").write_text("".join(lines[number::files]))


@pytest.fixture(scope="module")
def lines():
    with gzip.open(SAMPLES["a9a"]["train"], "rt") as file:
        return file.readlines()


@pytest.fixture
def data(job, lines):
    folder = job.folder / "data"
    write_parts(folder, lines)
    return folder


@pytest.fixture
def train(job, data):
    """Start a run on the folder with these arguments in addition."""

    def start(*arguments):
        flags = ("--run-dir", job.run_dir, "--plain", *LOCAL)
        return job.train(data, *flags, *arguments)

    return start


@pytest.mark.parametrize("copies", [1, 2])
def test_servers_train_on_the_files_that_they_have_read(job, train, copies, main):
    """With one copy, the test file is read by all servers; with two, each file has test rows."""
    test = ("--test", SAMPLES["a9a"]["test"]) if copies == 1 else ()
    rows, validated, tested = (TRAIN, VALIDATION, TEST)
    if test:
        rows, validated, tested = TRAIN + VALIDATION + TEST - ALONE, ALONE, 16_281
    process = train("--epochs", 3, "--data-copies", copies, *test)
    assert job.finish() == 0, job.said(process)
    summary = job.summary()
    assert summary["rows"] == 3 * rows
    assert summary["test"]["loss"] < 0.40
    assert check_that_rows_are_trained_on_once(job, rows) == 3
    (started,) = job.events(Started)
    held_out = started.validation_rows, started.test_rows
    assert (started.train_rows, *held_out) == (rows, validated, tested)
    if copies == 1:  # each has trained on its half, whatever its speed
        for server in ("server-0", "server-1"):
            own = json.loads((job.run_dir / "servers" / server / "summary.json").read_text())
            assert abs(own["rows"] - 3 * rows / 2) < 10
    done = main("evaluate", job.run_dir / "model.safetensors", SAMPLES["a9a"]["test"])
    assert done.returncode == 0, done.stderr


def lose_a_server(job):
    """Kill a server that trains, and wait until it is missed."""
    job.wait_for_event(ServersMerged, count=5)
    os.kill(job.events(WorkerJoined)[0].pid, signal.SIGKILL)
    job.wait_for_event(WorkerLost)


@pytest.mark.parametrize("copies", [1, 2])
def test_the_files_of_a_killed_server_are_read_again_or_taken_over(job, train, copies):
    train(*ENDLESS, "--eval-seconds", 1000, "--data-copies", copies)
    lose_a_server(job)
    if copies == 1:
        job.wait_for_event(WorkerReady, count=3)
    job.end_of_next_epoch()
    job.end_of_next_epoch()
    job.interrupt()
    check_that_rows_are_trained_on_once(job, TRAIN)


def test_a_run_continues_with_another_number_of_servers(job, train):
    train(*ENDLESS, "--checkpoint-seconds", 0.2, "--data-copies", 1)
    job.wait_for_event(CheckpointWritten)
    job.kill()
    flags = ("--servers", 3, "--data-copies", 2, "--max-seconds", 1e-3, "--plain")
    resumed = job.train("--resume", job.run_dir, *flags)
    assert resumed.wait(WITHIN_S) == 0, job.said(resumed)
    (event,) = job.events(Resumed)
    assert event.rows > 0 and job.summary()["rows"] >= event.rows


def test_a_file_that_has_changed_is_noticed(job, train, data):
    train(*ENDLESS, "--eval-seconds", 1000, "--data-copies", 1)
    job.wait_for_event(ServersMerged, count=2)
    for number in range(FILES):
        (data / f"part-{number}.svm").write_text("+1 3:1\n-1 4:1\n")
    os.kill(job.events(WorkerJoined)[0].pid, signal.SIGKILL)
    replacement = job.wait_for_event(WorkerLost, count=2)
    assert f"{data}/part-" in replacement.reason and "has changed" in replacement.reason
    job.interrupt()
    assert (job.run_dir / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--data-copies", 3), "--data-copies 3: expected at most as many as --servers, 2"),
        (("--data-copies", 1, "--drop", "a"), "--drop has no meaning with --data-copies"),
        (("--data-copies", 1, "--scale", "quantile"), "--scale quantile needs a table, but with"),
    ],
    ids=str,
)
def test_settings_that_exclude_division_are_refused(main, data, tmp_path, flags, expected):
    done = main("train", data, *LOCAL, "--run-dir", tmp_path / "run", *flags)
    assert done.returncode == 2
    assert expected in done.stderr and len(done.stderr.splitlines()) == 1


def test_data_that_cannot_be_divided_are_refused(main, data, tmp_path):
    where = ("--data-copies", 1, "--run-dir", tmp_path / "run")
    done = main("train", data, *where)
    assert done.returncode == 2 and "--data-copies needs --cluster" in done.stderr
    done = main("train", data / "part-0.svm", *LOCAL, *where)
    assert done.returncode == 2 and "part-0.svm" in done.stderr
    with (data / "part-4.svm").open("a") as file:
        file.write("+1 nonsense\n")
    done = main("train", data, *LOCAL, *where)
    assert done.returncode == 2
    assert "part-4.svm:" in done.stderr and len(done.stderr.splitlines()) == 1
