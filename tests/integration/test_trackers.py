"""Runs with `--log`, read back with the tools of each tracker."""

import csv
import json
import os
import signal
import socket
import warnings

import numpy as np
import pytest

import hogbatch
from tests.support.fault_injection import cli, wait_for
from tests.support.tracker_servers import QUIET, fetch, reserved_port, server

SMALL = ("--hidden", 8, "--epochs", 3, "--quiet")
TAGS = {
    *("loss/train", "loss/test", "metric/test/accuracy"),
    *("progress/epochs", "progress/rows", "progress/rows_per_second", "progress/seconds"),
    *("worker/cpu-0/batch_size", "worker/cpu-0/update_share"),
}


# Python imports it at its start. Runs wait for trackers as long as a loaded machine needs.
PATIENT = """
import sys

if "hogbatch.cli" in sys.orig_argv:
    from functools import partialmethod

    from hogbatch.trackers.tracking import Tracking

    Tracking.__init__ = partialmethod(Tracking.__init__, patience_s=120.0)
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


@pytest.fixture
def patient(tmp_path_factory, monkeypatch):
    """Runs in other processes wait long for their trackers."""
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


def steps(run_dir, tag="loss/test"):
    return [event.step for event in accumulated(run_dir).Scalars(tag)]


def history(run, name):
    return [entry[name] for entry in run["history"]]


def test_small_data_are_logged_from_python(plane, tmp_path):
    run = hogbatch.train(plane, hidden=(8,), epochs=3, quiet=True, run_dir=tmp_path, log=["csv"])
    table = table_of(tmp_path)
    assert set(table) >= TAGS
    assert table["progress/rows"] == history(run.summary, "rows")
    assert table["loss/test"] == history(run.summary, "test_loss")
    assert "metrics.csv" in (tmp_path / "run.json").read_text()


def test_a_missing_package_is_refused_before_anything_is_written(
    plane, tmp_path, main, monkeypatch
):
    monkeypatch.setattr("hogbatch.trackers.choose.find_spec", lambda name: None)
    refused = main("train", plane, "--log", "csv,wandb", "--run-dir", tmp_path / "run")
    assert refused.returncode == 2 and list(tmp_path.iterdir()) == []
    assert refused.stderr == (
        "hogbatch: log wandb needs the package wandb, which is not installed: "
        "pip install 'hogbatch[wandb]'\n"
    )


def test_an_unknown_tracker_is_refused_with_the_known_ones(plane, tmp_path, main):
    refused = main("train", plane, "--log", "aim", "--run-dir", tmp_path / "run")
    assert refused.returncode == 2 and list(tmp_path.iterdir()) == []
    assert "must be one of csv, tensorboard, mlflow, wandb" in refused.stderr


def test_a_run_that_replaces_another_replaces_its_metrics(plane, tmp_path, main):
    flags = ("train", plane, *SMALL, "--run-dir", tmp_path)
    assert main(*flags, "--log", "csv,tensorboard").returncode == 0
    assert max(table_of(tmp_path)["progress/epochs"]) == 3
    assert main(*flags, "--epochs", 1, "--log", "csv", "--overwrite").returncode == 0
    assert max(table_of(tmp_path)["progress/epochs"]) == 1
    assert not (tmp_path / "tensorboard").exists() and not (tmp_path / ".previous-run").exists()


def test_a_user_file_called_metrics_is_not_overwritten(plane, tmp_path, main):
    (tmp_path / "metrics.csv").write_text("mine")
    refused = main("train", plane, *SMALL, "--run-dir", tmp_path, "--log", "csv")
    assert refused.returncode == 2 and "metrics.csv does not belong to a run" in refused.stderr
    assert (tmp_path / "metrics.csv").read_text() == "mine"


def test_a_rehearsal_logs_simulated_seconds(plane, tmp_path, main):
    server = ("--server", "h100-16cores", "--workers", "cpu:2")
    done = main("rehearse", plane, *server, *SMALL, "--run-dir", tmp_path, "--log", "csv")
    assert done.returncode == 0, done.stderr
    table = table_of(tmp_path)
    run = json.loads((tmp_path / "summary.json").read_text())
    assert table["progress/seconds"] == history(run, "seconds")


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_a_killed_and_resumed_run_continues_its_files(job):
    often = ("--checkpoint-seconds", 0.05, "--eval-seconds", 0.05, "--workers", "cpu:1")
    job.train("a9a", *often, "--log", "csv,tensorboard", "--max-seconds", 300, "--hidden", 256)
    job.wait_for_event("checkpoint", 2)
    job.wait_for_event("evaluation", 4)
    job.coordinator.kill()
    job.coordinator.wait()
    wait_for(lambda: not job.processes(), "the workers end")
    reached = job.events("evaluation")[-1]["epochs"]
    again = ("--resume", "auto", "--workers", "cpu:1", "--epochs", round(reached) + 2)
    again += ("--max-seconds", 1e9)
    job.train(*again, "--hidden", 256)  # the settings of the run say that it is logged
    assert job.finish() == 0
    rows = history(job.summary(), "rows")
    assert job.events("resumed") and rows == sorted(rows)
    assert table_of(job.run_dir)["progress/rows"] == rows
    assert steps(job.run_dir) == rows


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_an_interrupted_run_says_so(job):
    job.train("a9a", "--workers", "cpu:1", "--log", "tensorboard", "--max-seconds", 300)
    job.wait_for_event("evaluation")
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    tensors = accumulated(job.run_dir).Tensors("result")
    assert b"| result/status | stopped |" in tensors[-1].tensor_proto.string_val[0]
    assert steps(job.run_dir) == history(job.summary(), "rows")


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_tensorboard_shows_a_run(plane, tmp_path):
    run_dir = tmp_path / "run"
    done = cli("train", plane, *SMALL, "--run-dir", run_dir, "--log", "tensorboard")
    assert done.returncode == 0 and done.stderr == ""
    events = accumulated(run_dir)
    losses = json.loads((run_dir / "summary.json").read_text())
    logged = [event.value for event in events.Scalars("loss/test")]
    assert logged == pytest.approx(history(losses, "test_loss"))  # TensorBoard stores float32
    assert steps(run_dir) == history(losses, "rows")
    settings = events.Tensors("settings")[0].tensor_proto.string_val[0].decode()
    assert "| hidden | 8 |" in settings and "| network | 5-8-1 |" in settings
    ready = "/data/plugin/scalars/tags"
    with server("tensorboard.main", "--logdir", str(run_dir), ready=ready, folder=tmp_path) as url:

        def shown():
            """The steps that TensorBoard shows, once it has loaded all tags."""
            for name, tags in fetch(url + ready).items():
                if set(tags) >= TAGS:
                    points = fetch(f"{url}/data/plugin/scalars/scalars?run={name}&tag=loss/test")
                    return [point[1] for point in points]

        wait_for(lambda: shown() == history(losses, "rows"), "TensorBoard shows the run")


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    store = ("--backend-store-uri", f"sqlite:///{folder}/server.db", "--workers", "1")
    with server("mlflow", "server", *store, ready="/health", folder=folder) as url:
        yield url


def mlflow_runs(url, experiment):
    named = fetch(f"{url}/api/2.0/mlflow/experiments/get-by-name?experiment_name={experiment}")
    ids = [named["experiment"]["experiment_id"]]
    return fetch(f"{url}/api/2.0/mlflow/runs/search", experiment_ids=ids)["runs"]


def entries(run, kind):
    return {entry["key"]: entry["value"] for entry in run["data"][kind]}


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_an_mlflow_server_has_the_run_and_its_continuation(plane, tmp_path, mlflow_server, patient):
    env = {"MLFLOW_TRACKING_URI": mlflow_server, "MLFLOW_EXPERIMENT_NAME": "planes"}
    flags = ("--run-dir", tmp_path / "run", "--log", "mlflow")
    done = cli("train", plane, *SMALL, *flags, env=env)
    assert done.returncode == 0 and done.stderr == ""
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (run,) = mlflow_runs(mlflow_server, "planes")
    assert run["info"]["status"] == "FINISHED" and run["info"]["run_name"] == "run"
    assert entries(run, "params")["hidden"] == "8" and entries(run, "params")["epochs"] == "3"
    metrics = entries(run, "metrics")
    assert set(metrics) >= TAGS
    assert metrics["result/test_loss"] == summary["test"]["loss"]
    assert entries(run, "tags")["result/model"] == str(tmp_path / "run" / "model.safetensors")

    later = ("--epochs", 5, "--max-seconds", 600, "--quiet")
    done = cli("train", "--resume", tmp_path / "run", *later, env=env)
    assert done.returncode == 0 and done.stderr == ""
    (run,) = mlflow_runs(mlflow_server, "planes")
    assert run["info"]["status"] == "FINISHED"
    assert entries(run, "tags")["resumed.epochs"] == "5"
    assert entries(run, "params")["max_seconds"] == "600.0"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    query = f"run_id={run['info']['run_id']}&metric_key=loss/test"
    points = fetch(f"{mlflow_server}/api/2.0/mlflow/metrics/get-history?{query}")["metrics"]
    found = sorted((int(point["step"]), point["value"]) for point in points)
    rows, losses = history(summary, "rows"), history(summary, "test_loss")
    assert found == list(zip(rows, losses, strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_an_mlflow_server_that_does_not_answer_stops_only_its_tracker(plane, tmp_path):
    arguments = ("--hidden", 8, "--epochs", 3, "--run-dir", tmp_path / "run", "--log", "mlflow,csv")
    with reserved_port() as port:
        env = {
            "MLFLOW_TRACKING_URI": f"http://me:hunter2@127.0.0.1:{port}",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        }
        done = cli("train", plane, *arguments, env=env)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.count("the mlflow tracker has stopped: ") == 1
    assert table_of(tmp_path / "run")["loss/test"]
    texts = [
        path.read_text() for path in (tmp_path / "run").glob("*.*") if path.suffix != ".safetensors"
    ]
    assert "hunter2" not in "".join([done.stdout, *texts])


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_ctrl_c_ends_the_waiting_for_a_server(job, plane):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, but never answers
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job.train(plane, "--epochs", 3, "--log", "mlflow", MLFLOW_TRACKING_URI=uri)
        wait_for(lambda: "sending the last values" in job.printed(job.coordinator), "it waits")
        job.coordinator.send_signal(signal.SIGINT)
        assert job.finish() == 0
    said = job.printed(job.coordinator)
    count = len(job.summary()["history"])
    assert f"mlflow: the result and {count} of {count} evaluations were not sent" in said
    assert (job.run_dir / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_weights_and_biases_writes_its_files_offline(plane, tmp_path):
    env = {"WANDB_MODE": "offline", "WANDB_API_KEY": "0123456789" * 4}
    flags = ("--hidden", 8, "--epochs", 3, "--run-dir", tmp_path / "run", "--log", "wandb")
    done = cli("train", plane, *flags, env=env)
    assert done.returncode == 0 and done.stderr == ""
    run_id = (tmp_path / "run" / "wandb-run-id").read_text().strip()
    (file,) = (tmp_path / "run" / "wandb").glob(f"offline-run-*-{run_id}/run-{run_id}.wandb")
    content = file.read_bytes()
    assert all(tag.encode() in content for tag in TAGS) and b"result/test_loss" in content
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert not any(env["WANDB_API_KEY"].encode() in path.read_bytes() for path in files)
    assert f"wandb: run {run_id}, offline; upload it with wandb sync" in done.stdout
