"""A second run in the same directory, and where a model is saved if the directory is gone."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from hogbatch.events.event import CheckpointWritten, WorkerJoined
from hogbatch.model.file import load_model
from hogbatch.run.checkpoint import folder
from tests.support.fault_injection import ENDLESS, WITHIN_S, wait_for

SHORT = ("--hidden", 8, "--epochs", 1)
LONG = ("--workers", "cpu:1", *ENDLESS, "--eval-seconds", 1000, "--lease-ms", 20)
OVERWRITE = ("--overwrite", "--seed", 7)  # the other run has another seed


def tree(run_dir):
    """All files and their contents, but for the address."""
    return {
        str(path.relative_to(run_dir)): path.read_bytes()
        for path in sorted(run_dir.rglob("*"))
        if path.is_file() and path.name != "coordinator.json"
    }


@pytest.fixture
def finished(finished_job):
    """The files of a finished run, in the run directory of `job`."""
    return tree(finished_job.run_dir)


def test_a_second_run_is_refused_and_changes_nothing(job, finished, main):
    refused = main("train", "a9a", "--run-dir", job.run_dir, *SHORT)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"hogbatch: {job.run_dir} contains a run (model.safetensors and 1 checkpoint): give "
        "--resume to continue it, --overwrite to replace it, or another --run-dir\n"
    )
    assert tree(job.run_dir) == finished


BROKEN = """
class Broken:
    def __init__(self, settings):
        pass

    def first_size(self, worker):
        raise RuntimeError("broken policy")

    def next_size(self, worker, others):
        return 1
"""


def test_overwrite_moves_the_earlier_run_unless_the_new_one_cannot_begin(
    job, finished, main, monkeypatch
):
    train = ("train", *SHORT, *OVERWRITE, "--run-dir", job.run_dir)
    assert main(*train, "gone.csv").returncode == 2
    assert tree(job.run_dir) == finished
    (job.folder / "broken_policy.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(job.folder)
    done = main(*train, "a9a", "--policy", "broken_policy:Broken")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    previous = job.run_dir / "previous-run"
    assert f"the earlier run was moved to {previous}" in done.stdout
    done = main("train", "a9a", *SHORT, "--run-dir", job.run_dir)  # the other one saved nothing
    assert done.returncode == 0, done.stderr
    assert load_model(previous / "model.safetensors").network.features == 123
    assert tree(previous) == {name: text for name, text in finished.items() if name != "run.json"}


@pytest.mark.parametrize("name", ["model.safetensors", "worker-0.log", "checkpoints"])
def test_files_of_the_user_are_left_alone(tmp_path, main, name):
    tmp_path.chmod(0o700)
    files = {name: "mine", "other": "mine"}
    for each, content in files.items():
        (tmp_path / each).write_text(content)
    done = main("train", "a9a", *SHORT, "--run-dir", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"hogbatch: {name} does not belong to a run (it is not listed in run.json) and would be "
        "overwritten; choose another --run-dir\n"
    )
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_a_run_interrupted_before_any_row_has_no_model(job):
    job.coordinate("a9a", "-q", "--start-with", 2)
    job.attach()
    job.wait_for_event(WorkerJoined)  # it stays alone, so nothing is trained on
    job.interrupt(signal.SIGTERM)
    assert job.said(job.coordinator) == (
        "hogbatch: interrupted before any row was trained on; no model was saved\n"
    )
    assert job.summary()["rows"] == 0 and job.summary()["saved"] is None
    assert not (job.run_dir / "model.safetensors").exists()


def test_a_run_that_no_worker_joins_fails_and_can_be_repeated(job, main):
    job.coordinate("a9a", "--wait-for-workers", 0.2)
    assert job.finish() == 6
    assert job.said(job.coordinator).startswith("hogbatch: no worker for")
    assert "no model was saved" in job.said(job.coordinator)
    assert job.summary()["status"] == "failed"
    assert "state     failed: no worker for" in main("status", job.run_dir).stdout
    done = main("train", "a9a", *SHORT, "--run-dir", job.run_dir)
    assert done.returncode == 0, "nothing is there that could be lost"


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_model_is_saved_elsewhere_if_the_run_directory_is_gone(job, how):
    temporary = job.folder / "tmp"
    temporary.mkdir()
    job.train("a9a", *LONG, "--checkpoint-seconds", 0.2, TMPDIR=str(temporary))
    job.wait_for_event(CheckpointWritten)
    job.coordinator.send_signal(signal.SIGSTOP)  # it writes nothing while its files are removed
    os.waitid(os.P_PID, job.coordinator.pid, os.WSTOPPED | os.WNOWAIT)
    moved = job.run_dir.rename(job.folder / "moved")
    if how == "removed":
        shutil.rmtree(moved)
    if how == "replaced":
        job.run_dir.mkdir(mode=0o700)
        (job.run_dir / "model.safetensors").write_text("another's")
    job.coordinator.send_signal(signal.SIGCONT)
    wait_for(lambda: "cannot save" in job.printed(job.coordinator), "a checkpoint fails")
    job.coordinator.send_signal(signal.SIGINT)
    assert job.coordinator.wait(WITHIN_S) == 5
    said = job.said(job.coordinator)
    assert "Traceback" not in said and "was removed, moved or replaced" in said
    path = Path(re.search(r"the model is in (\S+) instead", said)[1])
    assert path.parent.parent == temporary and path.parent.stat().st_mode & 0o777 == 0o700
    assert load_model(path).network.features == 123
    assert (path.parent / "summary.json").exists()
    if how == "replaced":
        assert [each.name for each in job.run_dir.iterdir()] == ["model.safetensors"]
    if how == "moved":
        assert folder.newest_intact(moved / "checkpoints")[0] is not None
