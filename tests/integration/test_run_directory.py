"""A second run in the same directory, and where a model is saved if the directory is gone."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from hogbatch.model.file import load_model
from hogbatch.run.checkpoint import folder
from tests.support.fault_injection import WITHIN_S, cli, wait_for

SHORT = ("--workers", "cpu:1", "--epochs", 1)
ENDLESS = ("--workers", "cpu:1", "--max-seconds", 300, "--eval-seconds", 1000, "--lease-ms", 20)
OVERWRITE = ("--overwrite", "--seed", 7)  # the other run has another seed

BROKEN = """
class Broken:
    def __init__(self, settings):
        pass

    def first_size(self, worker):
        raise RuntimeError("broken policy")

    def next_size(self, worker, others):
        return 1
"""


def tree(run_dir):
    """All files and their contents, but for the address and what an unsaved run has left."""
    return {
        str(path.relative_to(run_dir)): path.read_bytes()
        for path in sorted(run_dir.rglob("*"))
        if path.is_file()
        and path.name != "coordinator.json"
        and "unsaved-run" not in path.relative_to(run_dir).parts
    }


def replace(job):
    """Start a run that is to replace the one that is there, and wait until it trains."""
    job.train("a9a", *ENDLESS, *OVERWRITE, "--checkpoint-seconds", 0)
    wait_for((job.run_dir / ".previous-run").is_dir, "the earlier run is moved")
    job.wait_for_event("lease")


@pytest.fixture
def finished(finished_job):
    """The files of a finished run, in the run directory of `job`."""
    return tree(finished_job.run_dir)


def test_a_second_run_is_refused_and_changes_nothing(job, finished):
    refused = cli("train", "a9a", "--run-dir", job.run_dir, *SHORT)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"hogbatch: {job.run_dir} contains a run (model.safetensors and 1 checkpoint): give "
        "--resume to continue it, --overwrite to replace it, or another --run-dir\n"
    )
    assert tree(job.run_dir) == finished


def test_a_model_without_checkpoints_is_not_replaced_by_resume_auto(job):
    job.train("a9a", *SHORT, "--checkpoint-seconds", 0)
    assert job.finish() == 0
    before = tree(job.run_dir)
    job.train("a9a", *SHORT, "--resume", "auto")
    assert job.finish() == 2
    assert "contains a run (model.safetensors): give --overwrite" in job.said(job.coordinator)
    assert tree(job.run_dir) == before


def test_overwrite_replaces_a_run_as_soon_as_the_new_one_has_a_checkpoint(job, finished):
    job.coordinate("a9a", "--max-seconds", 300, *OVERWRITE, "--checkpoint-seconds", 0.1)
    assert (job.run_dir / ".previous-run").is_dir()  # nothing is saved before a worker trains
    assert not (job.run_dir / "model.safetensors").exists()
    job.attach()
    job.wait_for_event("checkpoint")
    assert not (job.run_dir / ".previous-run").exists()
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    assert (job.run_dir / "model.safetensors").read_bytes() != finished["model.safetensors"]
    assert "seed = 7" in (job.run_dir / "config.toml").read_text()
    assert job.temporary_files() == []


@pytest.mark.parametrize("mistake", ["policy", "data", "label"])
def test_overwrite_with_a_mistake_loses_nothing(job, finished, mistake):
    (job.folder / "mine.py").write_text(BROKEN)
    (job.folder / "bad.csv").write_text("a,b\n1,2\n3,x\n")
    given = {
        "policy": ("a9a", "--policy", "mine:Broken"),
        "data": ("gone.csv",),
        "label": ("bad.csv", "--label", "c"),
    }[mistake]
    job.train(*given, *SHORT, *OVERWRITE, PYTHONPATH=str(job.folder))
    assert job.finish() == 2
    assert tree(job.run_dir) == finished
    assert ("was restored" in job.printed(job.coordinator)) == (mistake == "policy")
    assert (job.run_dir / "unsaved-run" / "events.jsonl").exists() == (mistake == "policy")


@pytest.mark.parametrize("how", ["resume", "overwrite", "refused"])
def test_a_run_replaced_by_one_that_is_killed_at_once_is_there_for_the_next(job, finished, how):
    replace(job)
    job.coordinator.kill()
    job.coordinator.wait()
    wait_for(lambda: not job.processes(), "the workers end")
    assert not (job.run_dir / "model.safetensors").exists()
    if how == "resume":
        done = cli("train", "--resume", job.run_dir, "--epochs", 2)
        assert done.returncode == 0, done.stderr
        assert job.summary()["epochs"] == 2
        assert "seed = 0" in (job.run_dir / "config.toml").read_text()
    elif how == "overwrite":
        done = cli("train", "a9a", *SHORT, *OVERWRITE, "--run-dir", job.run_dir)
        assert done.returncode == 0, done.stderr
        assert load_model(job.run_dir / "model.safetensors").network.layers[0].width == 512
    else:
        done = cli("train", "a9a", *SHORT, "--run-dir", job.run_dir)
        assert done.returncode == 2 and "contains a run" in done.stderr
        assert tree(job.run_dir) == finished
    assert f"the earlier run in {job.run_dir} was restored" in done.stdout


@pytest.mark.parametrize(
    "name", ["model.safetensors", "summary.json", "coordinator.json", "worker-0.log", "checkpoints"]
)
def test_files_of_the_user_are_left_alone(tmp_path, name):
    tmp_path.chmod(0o700)
    (tmp_path / name).write_text("mine")
    (tmp_path / "other").write_text("mine")
    done = cli("train", "a9a", *SHORT, "--run-dir", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"hogbatch: {name} does not belong to a run (it is not listed in run.json) and would be "
        "overwritten; choose another --run-dir\n"
    )
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: "mine",
        "other": "mine",
    }


def test_a_run_interrupted_before_any_row_saves_no_model(job, finished):
    job.coordinate("a9a", "-q", "--overwrite", "--start-with", 2)
    job.attach()
    job.wait_for_event("worker_joined")  # it stays alone, so nothing is trained on
    assert not (job.run_dir / "model.safetensors").exists()
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    assert job.said(job.coordinator) == (
        "hogbatch: interrupted before any row was trained on; no model was saved\n"
    )
    assert tree(job.run_dir) == finished
    left = job.run_dir / "unsaved-run"
    assert sorted(os.listdir(left)) == ["config.toml", "events.jsonl", "summary.json"]


def handles_signals(pid):
    """Whether a process has a handler for SIGTERM, which Python does not install by itself."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^SigCgt:\s*(\w+)", status, re.M)[1], 16) >> (signal.SIGTERM - 1) & 1


@pytest.mark.parametrize("how", ["interrupted", "no worker"])
def test_a_run_without_a_row_leaves_neither_model_nor_checkpoint(job, how):
    job.coordinate("a9a", "--wait-for-workers", 60 if how == "interrupted" else 0.2)
    if how == "interrupted":
        wait_for(lambda: handles_signals(job.coordinator.pid), "the coordinator's loop runs")
        job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == (130 if how == "interrupted" else 6)
    assert "no model was saved" in job.said(job.coordinator)
    assert job.summary()["rows"] == 0 and job.summary()["saved"] is None
    assert not (job.run_dir / "model.safetensors").exists()
    assert folder.paths(job.run_dir / "checkpoints") == []
    job.train("a9a", *SHORT)  # nothing is there that could be lost
    assert job.finish() == 0


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_model_is_saved_elsewhere_if_the_run_directory_is_gone(job, how):
    temporary = job.folder / "tmp"
    temporary.mkdir()
    job.train("a9a", *ENDLESS, "--checkpoint-seconds", 0.2, TMPDIR=str(temporary))
    job.wait_for_event("checkpoint")
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


def test_a_path_to_resume_that_does_not_exist_is_named(tmp_path):
    for data in ((), ("a9a",)):
        done = cli("train", *data, "--resume", "nowhere", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("hogbatch: --resume nowhere does not exist; expected a run")
    assert list(tmp_path.iterdir()) == []
