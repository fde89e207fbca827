"""A second run in the same directory, and where a model is saved if the directory is gone."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from hogbatch.model.file import load_model
from hogbatch.run.checkpoint import folder
from tests.support.fault_injection import ENDLESS, WITHIN_S, wait_for

SHORT = ("--hidden", 8, "--epochs", 1)
LONG = ("--workers", "cpu:1", *ENDLESS, "--eval-seconds", 1000, "--lease-ms", 20)
OVERWRITE = ("--overwrite", "--seed", 7)  # the other run has another seed


def tree(run_dir):
    """All files and their contents, but for the address and what an unsaved run has left."""
    return {
        str(path.relative_to(run_dir)): path.read_bytes()
        for path in sorted(run_dir.rglob("*"))
        if path.is_file()
        and path.name != "coordinator.json"
        and "unsaved-run" not in path.relative_to(run_dir).parts
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


def test_overwrite_replaces_a_run_as_soon_as_the_new_one_has_a_checkpoint(job, finished):
    job.coordinate("a9a", *OVERWRITE, *ENDLESS, "--checkpoint-seconds", 0.1)
    assert (job.run_dir / ".previous-run").is_dir()  # nothing is saved before a worker trains
    assert not (job.run_dir / "model.safetensors").exists()
    job.attach()
    job.wait_for_event("checkpoint")
    assert not (job.run_dir / ".previous-run").exists()
    job.interrupt()
    assert (job.run_dir / "model.safetensors").read_bytes() != finished["model.safetensors"]
    assert "seed = 7" in (job.run_dir / "config.toml").read_text()
    assert job.temporary_files() == []


BROKEN = """
class Broken:
    def __init__(self, settings):
        pass

    def first_size(self, worker):
        raise RuntimeError("broken policy")

    def next_size(self, worker, others):
        return 1
"""


@pytest.mark.parametrize("mistake", ["policy", "data"])
def test_overwrite_with_a_mistake_loses_nothing(job, finished, main, monkeypatch, mistake):
    (job.folder / "broken_policy.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(job.folder)
    given = {"policy": ("a9a", "--policy", "broken_policy:Broken"), "data": ("gone.csv",)}[mistake]
    done = main("train", *given, *SHORT, *OVERWRITE, "--run-dir", job.run_dir)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert tree(job.run_dir) == finished
    assert ("was restored" in done.stdout) == (mistake == "policy")
    assert (job.run_dir / "unsaved-run" / "events.jsonl").exists() == (mistake == "policy")


@pytest.mark.parametrize("how", ["resume", "refused"])
def test_a_run_replaced_by_one_that_is_killed_at_once_is_there_for_the_next(
    job, finished, main, how
):
    job.train("a9a", *LONG, *OVERWRITE, "--checkpoint-seconds", 0)
    wait_for((job.run_dir / ".previous-run").is_dir, "the earlier run is moved")
    job.wait_for_event("lease")
    job.kill()
    assert not (job.run_dir / "model.safetensors").exists()
    if how == "resume":
        done = main("train", "--resume", job.run_dir, "--epochs", 2)
        assert done.returncode == 0, done.stderr
        assert job.summary()["epochs"] == 2
        assert "seed = 0" in (job.run_dir / "config.toml").read_text()
    else:
        done = main("train", "a9a", *SHORT, "--run-dir", job.run_dir)
        assert done.returncode == 2 and "contains a run" in done.stderr
        assert tree(job.run_dir) == finished
    assert f"the earlier run in {job.run_dir} was restored" in done.stdout


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


def test_a_run_interrupted_before_any_row_restores_the_earlier_one(job, finished):
    job.coordinate("a9a", "-q", "--overwrite", "--start-with", 2)
    job.attach()
    job.wait_for_event("worker_joined")  # it stays alone, so nothing is trained on
    assert not (job.run_dir / "model.safetensors").exists()
    job.interrupt(signal.SIGTERM)
    assert job.said(job.coordinator) == (
        "hogbatch: interrupted before any row was trained on; no model was saved\n"
    )
    assert tree(job.run_dir) == finished
    left = job.run_dir / "unsaved-run"
    summary = json.loads((left / "summary.json").read_text())
    assert summary["rows"] == 0 and summary["saved"] is None
    assert sorted(os.listdir(left)) == ["config.toml", "events.jsonl", "summary.json"]


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
