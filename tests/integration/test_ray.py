"""Training on a Ray cluster of two machines, which are processes of this one."""

import gzip
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from hogbatch.data.samples import SAMPLES
from hogbatch.errors import NoWorkers
from hogbatch.events.event import (
    CheckpointWritten,
    EpochEnded,
    PlaneChosen,
    ServersMerged,
    WorkerLost,
    WorkerReady,
)
from tests.support.doc_programs import program, write_table
from tests.support.fault_injection import ENDLESS, ROWS, WITHIN_S, wait_for
from tests.support.ray_cluster import add_machine, processes_that_call_ray, two_machines

ray = pytest.importorskip("ray", reason="Ray is not installed; install hogbatch[ray]")


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two machines with one core each."""
    with two_machines() as made:
        yield made


def test_each_machine_reads_its_own_files_and_they_train_one_model(job, cluster):
    data = job.folder / "data"
    data.mkdir()
    with gzip.open(SAMPLES["a9a"]["train"], "rt") as file:
        lines = file.readlines()
    for number in range(4):
        (data / f"{number}.svm").write_text("".join(lines[number::4]))
    where = ("--cluster", cluster.address, "--hidden", 32, "--data-copies", 1, "--plain")
    test = ("--epochs", 2, "--test", SAMPLES["a9a"]["test"], "--plane", "relay")
    process = job.train(data, *where, *test, "--servers", 2)
    assert job.finish() == 0, job.said(process)
    summary = job.summary()
    merged = sum(event.rows for event in job.events(ServersMerged))
    assert summary["rows"] == merged == 2 * ROWS
    assert summary["test"]["loss"] < 0.45
    assert [event.plane for event in job.events(PlaneChosen)] == ["the object store of Ray"]
    printed = job.printed(process)
    assert "2 servers of a Ray cluster, each with cpu:1" in printed
    assert "Ray listens on all network interfaces" in printed and "require a token" in printed
    own = (job.run_dir / "servers").glob("server-*/summary.json")
    assert sum(json.loads(each.read_text())["rows"] for each in own) == 2 * ROWS

    with (data / "3.svm").open("a") as file:
        file.write("+1 bad\n")
    for servers, expected in ((2, "3.svm:"), (3, "the Ray cluster has 2 machines with processors")):
        process = job.train(data, *where, "--servers", servers, "--overwrite")
        assert job.finish() == 2
        said = [line for line in job.said(process).splitlines() if line.startswith("hogbatch: ")]
        assert len(said) == 1 and expected in said[0]  # Ray may write other lines


SMALL = {  # what the test replaces in the program of docs/tuning.md
    '"workers": "cpu:2"': '"workers": "cpu:1"',
    '{"cpu": 2}': '{"cpu": 1}',
    '"max_seconds": 30': '"epochs": 20',
    "tune.loguniform(1e-3, 1)": "tune.grid_search([0.03, 0.1])",
    "num_samples=20": "num_samples=1",
}
SHOW_RESULTS = """
import json

trials = [
    [each.metrics["validation_loss"], str(each.error or ""), len(each.metrics_dataframe)]
    for each in results
]
print("RESULTS", json.dumps([best.metrics["validation_loss"], model.network.features, trials]))
"""


@pytest.mark.skipif(" " in sys.executable, reason="Ray cannot start trials in a path with a blank")
def test_ray_tune_searches_for_settings(cluster, tmp_path):
    pytest.importorskip(
        "ray.tune", reason="Ray Tune is not installed; install ray[tune]", exc_type=ImportError
    )
    write_table(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", program("ray", SMALL) + SHOW_RESULTS],
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * WITHIN_S,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    best, features, trials = json.loads(line.removeprefix("RESULTS "))
    assert features == 5, "the model is that of the data"
    assert best == min(loss for loss, _, _ in trials) and 0 < best < np.log(3)
    assert len(trials) == 2
    assert all(error == "" and reports >= 2 for _, error, reports in trials)
    losses = [
        json.loads(path.read_text())["validation"]["loss"]
        for path in (tmp_path / "tune").glob("*/*/*/summary.json")
    ]
    assert sorted(losses) == sorted(loss for loss, _, _ in trials)


def test_a_machine_that_is_killed_is_replaced_by_one_that_joins(job, cluster):
    where = ("--cluster", cluster.address, "--servers", 2, "--plain")
    process = job.train("a9a", *where, *ENDLESS, "--eval-seconds", 1000)
    job.wait_for_event(ServersMerged, count=5)
    (lost,) = cluster.worker_nodes
    for kind in lost.all_processes.values():  # with SIGKILL, as if its power were off
        for each in kind:
            os.kill(each.process.pid, signal.SIGKILL)
    job.wait_for_event(WorkerLost)
    alone = job.events(ServersMerged)[-1].merge
    job.wait_for_event(ServersMerged, count=alone + 5)
    cluster.remove_node(lost)
    add_machine(cluster)
    joined = job.wait_for_event(WorkerReady, count=3)

    def both_merge():
        assert process.poll() is None, job.said(process)
        last = job.events(ServersMerged)[-1]
        return len(last.servers) == 2 and joined.worker in last.servers

    wait_for(both_merge, "the server that has joined takes part in merges")
    for each in processes_that_call_ray(process.pid):  # `ray job stop` signals all processes
        os.kill(each, signal.SIGTERM)
    job.interrupt(signal.SIGTERM)
    assert {event.rows for event in job.events(EpochEnded)} <= {ROWS}


def test_the_loss_of_ray_costs_neither_the_model_nor_the_message(job, cluster):
    """Ray ends the process that calls it so if its raylet is lost (scripts/chaos --cluster ray)."""
    process = job.train("a9a", "--cluster", cluster.address, *ENDLESS, "--eval-seconds", 1000)
    job.wait_for_event(CheckpointWritten)
    for each in processes_that_call_ray(process.pid):
        os.kill(each, signal.SIGKILL)
    assert job.finish() == NoWorkers.exit_code
    *others, last = job.said(process).splitlines()
    assert not others, "Ray prints nothing there"
    assert last.startswith("hogbatch: all servers that had the model are lost (")
    assert last.endswith(
        f"the model kept so far is in {job.run_dir}/model.safetensors; "
        f"continue with --resume {job.run_dir}"
    )
    assert (job.run_dir / "model.safetensors").exists() and job.summary()["status"] == "failed"
