"""`hogbatch status` and `hogbatch runs` beside real runs: in progress, killed, resumed, ended."""

import json
import signal
import subprocess
import sys

import pytest

from hogbatch.events.event import CheckpointWritten, Evaluation, LeaseDone
from tests.support.fault_injection import ENDLESS, ROWS, WITHIN_S, wait_for

LONG = ("--workers", "cpu:1", "--hidden", "64,64", *ENDLESS, "--eval-seconds", 0.2)


@pytest.fixture
def status(main):
    """The report on a run, as JSON."""

    def call(run_dir):
        done = main("status", run_dir, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return call


def follow(job):
    """Start `hogbatch status --follow` as a job of its own."""
    return job._start("hogbatch.cli.main", "status", job.run_dir, "--follow")


def test_a_run_is_followed_through_a_kill_and_a_resumption_to_its_end(job, main, status):
    job.train("a9a", *LONG, "--checkpoint-seconds", 0.2)
    job.wait_for_event(CheckpointWritten)
    job.wait_for_event(Evaluation, 2)
    report = status(job.run_dir)
    assert report["state"] == "training" and report["rows_per_second"] > 0
    assert report["started"]["train_rows"] == ROWS and 0 < report["seconds_left"] < 1000
    (worker,) = report["workers"]
    assert (worker["name"], worker["device"], worker["state"]) == ("cpu-0", "cpu:1", "trains")
    assert job.coordinator.poll() is None, "looking at a run does not disturb it"

    follower = follow(job)
    wait_for(lambda: "state     training" in job.printed(follower), "the run is shown")
    job.coordinator.kill()
    job.coordinator.wait()
    wait_for(lambda: "state     killed?" in job.printed(follower), "the kill is noticed")
    report = status(job.run_dir)
    assert report["state"] == "killed?" and "--resume" in report["reason"]
    (listed,) = json.loads(main("runs", job.folder, "--json").stdout)["runs"]
    assert (
        listed["state"] == "killed?"
        and listed["validation_loss"] == report["best"]["validation_loss"]
    )

    seconds = report["seconds"] + 0.5
    job.train("--resume", job.run_dir, "--hidden", "64,64", "--max-seconds", seconds)
    assert job.coordinator.wait(WITHIN_S) == 0
    assert follower.wait(WITHIN_S) == 0, "it ends with the run"
    assert "state     finished: the maximum training time is over" in job.printed(follower)
    assert "\x1b" not in job.printed(follower), "a file is not cleared"
    report, summary = status(job.run_dir), job.summary()
    assert report["state"] == "finished"
    assert report["rows"] == summary["rows"] and report["seconds"] == summary["train_seconds"]
    assert report["best"]["validation_loss"] == summary["validation"]["loss"]
    assert report["test"]["loss"] == summary["test"]["loss"]
    assert [worker["left_at"] is None for worker in report["workers"]] == [False, True]
    assert sum(worker["rows"] for worker in report["workers"]) == summary["rows"]


def test_a_new_run_in_the_directory_is_followed(finished_job, status):
    job = finished_job
    assert status(job.run_dir)["state"] == "finished"
    job.train("a9a", *LONG, "--overwrite")
    wait_for((job.run_dir / "previous-run").is_dir, "the earlier run is moved")
    job.wait_for_event(LeaseDone)
    assert status(job.run_dir)["state"] == "training"
    follower = follow(job)
    wait_for(lambda: "state     training" in job.printed(follower), "the new run is shown")
    follower.send_signal(signal.SIGINT)
    assert follower.wait(WITHIN_S) == 130
    assert job.said(follower) == "hogbatch: interrupted\n"
    job.interrupt()
    report = status(job.run_dir)
    assert (report["state"], report["reason"]) == ("stopped", "interrupted")


@pytest.mark.parametrize("command", ["status", "runs", "report"])
def test_the_commands_do_not_import_what_trains(finished_job, command):
    job = finished_job
    (job.run_dir / "model.safetensors").unlink()  # whose predictions a report would have
    path = job.folder if command == "runs" else job.run_dir
    figures = [] if command == "report" else ["numpy", "matplotlib"]
    program = (
        "import sys; from hogbatch.cli import main as cli; "
        f"code = cli.main({[command, str(path)]!r}); "
        "heavy = {'numba', 'llvmlite', 'cupy', 'zmq', 'hogbatch.coordinator', 'hogbatch.kernels', "
        f"'hogbatch.run', *{figures}}}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "[]\n")
