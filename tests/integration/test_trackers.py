"""Runs with `--log`, read back with the tools of each tracker."""

import csv
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from hogbatch.events.event import CheckpointWritten, Evaluation, Resumed
from tests.support.fault_injection import ENDLESS, WITHIN_S, cli

pytestmark = pytest.mark.slow
SMALL = ("--hidden", 8, "--epochs", 3, "--quiet")
QUIET = {  # nothing is reported to the makers of the trackers
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB__SERVICE_WAIT": str(WITHIN_S),
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}
TAGS = {
    *("loss/train", "loss/validation", "metric/validation/accuracy"),
    *("progress/epochs", "progress/rows", "progress/rows_per_second", "progress/seconds"),
    *("worker/cpu-0/batch_size", "worker/cpu-0/update_share"),
}


PATIENT = """
import sys

if "hogbatch.cli.main" in sys.orig_argv:
    from hogbatch.views.trackers import tracking

    tracking.PATIENCE_S = 120.0
"""


@pytest.fixture(autouse=True)
def quiet_clients(monkeypatch, tmp_path_factory):
    """Trackers without the settings of the user."""
    for name in [name for name in os.environ if name.startswith(("MLFLOW_", "WANDB_"))]:
        monkeypatch.delenv(name)
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    own = tmp_path_factory.mktemp("wandb")
    for kind in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{kind}_DIR", str(own))


@pytest.fixture(autouse=True)
def patient(tmp_path_factory, monkeypatch):
    """Runs in other processes wait for their trackers as long as a loaded machine needs."""
    folder = tmp_path_factory.mktemp("patient")
    (folder / "sitecustomize.py").write_text(PATIENT)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    random = np.random.default_rng(3)
    x = random.normal(size=(400, 5))
    path = tmp_path_factory.mktemp("data") / "plane.npz"
    np.savez(path, X=x, y=np.where(x[:, 0] + x[:, 1] > 0, 1.0, -1.0))
    return path


def table_of(run_dir):
    """The columns of --log csv, by name; pandas may round the numbers."""
    with (run_dir / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name] or "nan") for row in rows] for name in rows[0]}


def accumulated(run_dir):
    """The event files of a run, as TensorBoard reads them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that TensorBoard imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    return EventAccumulator(str(run_dir / "tensorboard")).Reload()


def steps(run_dir, tag="loss/validation"):
    return [event.step for event in accumulated(run_dir).Scalars(tag)]


def history(run, name):
    return [entry[name] for entry in run["history"]]


def test_a_killed_resumed_and_interrupted_run_continues_its_files(job):
    often = ("--checkpoint-seconds", 0.05, "--eval-seconds", 0.05, "--workers", "cpu:1")
    job.train("a9a", *often, "--log", "csv,tensorboard", *ENDLESS, "--hidden", 256)
    job.wait_for_event(CheckpointWritten, 2)
    job.wait_for_event(Evaluation, 4)
    job.kill()
    evaluations = len(job.events(Evaluation))
    job.train("--resume", "auto", "--hidden", 256)  # the settings of the run say that it is logged
    job.wait_for_event(Resumed)
    job.wait_for_event(Evaluation, evaluations + 2)
    job.interrupt()
    rows = history(job.summary(), "rows")
    assert job.events(Resumed) and rows == sorted(rows)
    assert table_of(job.run_dir)["progress/rows"] == rows
    assert steps(job.run_dir) == rows
    tensors = accumulated(job.run_dir).Tensors("result")
    assert b"| result/status | stopped |" in tensors[-1].tensor_proto.string_val[0]


def test_a_run_is_in_the_files_of_every_tracker(plane, tmp_path, main):
    flags = ("train", plane, "--hidden", 8, "--epochs", 3, "--run-dir", tmp_path / "run")
    done = cli(*flags, "--log", "csv,tensorboard,wandb", env={"WANDB_MODE": "offline"})
    assert done.returncode == 0 and done.stderr == ""
    run_dir = tmp_path / "run"
    summary = json.loads((run_dir / "summary.json").read_text())
    table, events = table_of(run_dir), accumulated(run_dir)
    assert set(table) >= TAGS
    assert table["progress/rows"] == steps(run_dir) == history(summary, "rows")
    assert table["loss/validation"] == history(summary, "validation_loss")
    logged = [event.value for event in events.Scalars("loss/validation")]
    assert logged == pytest.approx(table["loss/validation"])  # TensorBoard stores float32
    settings = events.Tensors("settings")[0].tensor_proto.string_val[0].decode()
    assert "| hidden | 8 |" in settings and "| network | 5-8-1 |" in settings
    run_id = (run_dir / "wandb-run-id").read_text().strip()
    (file,) = (run_dir / "wandb").glob(f"offline-run-*-{run_id}/run-{run_id}.wandb")
    content = file.read_bytes()
    assert all(tag.encode() in content for tag in TAGS) and b"result/test_loss" in content
    assert f"wandb: run {run_id}, offline; upload it with wandb sync" in done.stdout
    assert main(*flags, "--epochs", 1, "--log", "csv", "--overwrite").returncode == 0
    assert max(table_of(run_dir)["progress/epochs"]) == 1
    assert not (run_dir / "tensorboard").exists(), "a run that replaces another has its own files"


READ = """
import json, sys
from mlflow import MlflowClient

client = MlflowClient(sys.argv[1])
run = client.get_run(sys.argv[2])
found = run.to_dictionary()
found["experiment"] = client.get_experiment(run.info.experiment_id).name
history = client.get_metric_history(run.info.run_id, "loss/validation")
found["loss/validation"] = sorted((point.step, point.value) for point in history)
print(json.dumps(found))
"""


def mlflow_run(uri, run_dir):
    """What MLflow has of a run, read in a process of its own, which ends what the client starts."""
    run_id = (run_dir / "mlflow-run-id").read_text().strip()
    command = [sys.executable, "-c", READ, uri, run_id]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def test_mlflow_has_the_run_and_its_continuation(plane, tmp_path):
    run_dir = tmp_path / "run"
    for flags in (
        (plane, *SMALL, "--run-dir", run_dir, "--log", "mlflow"),
        ("--resume", run_dir, "--epochs", 5, "--max-seconds", 600, "--quiet"),
    ):
        done = cli("train", *flags, env={"MLFLOW_EXPERIMENT_NAME": "planes"})
        assert done.returncode == 0 and done.stderr == ""
    run = mlflow_run(f"sqlite:///{tmp_path}/mlflow.db", run_dir)
    assert (tmp_path / "mlflow.db").stat().st_mode & 0o777 == 0o600
    assert run["experiment"] == "planes" and run["info"]["run_name"] == "run"
    assert run["info"]["status"] == "FINISHED"
    params, metrics, tags = (run["data"][kind] for kind in ("params", "metrics", "tags"))
    assert params["hidden"] == "8" and params["epochs"] == "3" and params["network"] == "5-8-1"
    assert params["max_seconds"] == "600.0" and tags["resumed.epochs"] == "5"
    assert set(metrics) >= TAGS
    assert tags["result/model"] == str(run_dir / "model.safetensors")
    summary = json.loads((run_dir / "summary.json").read_text())
    assert metrics["result/test_loss"] == summary["test"]["loss"]
    rows, losses = history(summary, "rows"), history(summary, "validation_loss")
    assert run["loss/validation"] == [list(point) for point in zip(rows, losses, strict=True)]
