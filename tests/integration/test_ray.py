"""Training on a Ray cluster: two machines, which are processes of this one, with a core each."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from hogbatch.data.samples import SAMPLES
from hogbatch.events.event import EpochEnded, PlaneChosen, ServersMerged, WorkerLost, WorkerReady
from tests.support.doc_references import ROOT
from tests.support.fault_injection import ENDLESS, ROWS, WITHIN_S, wait_for

ray = pytest.importorskip("ray", reason="Ray is not installed; install hogbatch[ray]")

MACHINE = {"num_cpus": 1, "object_store_memory": 100 << 20}


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two machines with one core each."""
    from ray.cluster_utils import Cluster

    settings = {
        "RAY_memory_monitor_refresh_ms": "0",  # other programs may have all the memory they want
        "RAY_gcs_server_port_wait_time_s": str(WITHIN_S),
    }
    head = MACHINE | {"include_dashboard": False, "dashboard_agent_listen_port": 0, "wait": False}
    with (
        # Not /tmp/ray, which may belong to another user; the paths of Ray's sockets must be short.
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            patch.delenv(name)
        for name, value in (settings | {"RAY_TMPDIR": folder}).items():
            patch.setenv(name, value)
        made = Cluster(initialize_head=True, head_node_args=head)
        add_machine(made)
        yield made
        made.shutdown()


def add_machine(cluster):
    """Add a machine, and wait until all machines of the cluster are there."""
    cluster.add_node(**MACHINE, wait=False)
    cluster.wait_for_nodes(WITHIN_S)


def test_each_machine_reads_its_own_files_and_they_train_one_model(job, cluster):
    data = job.folder / "data"
    data.mkdir()
    with gzip.open(SAMPLES["a9a"].train, "rt") as file:
        lines = file.readlines()
    for number in range(4):
        (data / f"{number}.svm").write_text("".join(lines[number::4]))
    where = ("--cluster", cluster.address, "--hidden", 32, "--data-copies", 1, "--plain")
    test = ("--epochs", 2, "--test", SAMPLES["a9a"].test, "--plane", "relay")
    process = job.train(data, *where, *test, "--servers", 2)
    assert job.finish() == 0, job.said(process)
    summary = job.summary()
    merged = sum(event.rows for event in job.events(ServersMerged))
    assert summary["rows"] == merged == 2 * ROWS
    assert summary["test"]["loss"] < 0.45
    assert [event.plane for event in job.events(PlaneChosen)] == ["the object store of Ray"]
    assert "2 servers of a Ray cluster, each with cpu:1" in job.printed(process)
    own = (job.run_dir / "servers").glob("server-*/summary.json")
    assert sum(json.loads(each.read_text())["rows"] for each in own) == 2 * ROWS

    with (data / "3.svm").open("a") as file:
        file.write("+1 bad\n")
    for servers, expected in ((2, "3.svm:"), (3, "the Ray cluster has 2 machines with processors")):
        process = job.train(data, *where, "--servers", servers, "--overwrite")
        assert job.finish() == 2
        said = [line for line in job.said(process).splitlines() if line.startswith("hogbatch: ")]
        assert len(said) == 1 and expected in said[0]  # Ray may write other lines


SMALL = {  # what the test replaces in the search of docs/cluster.md
    'workers="cpu:2"': 'workers="cpu:1"',
    '{"cpu": 2}': '{"cpu": 1}',
    "max_seconds=30": "epochs=20",
    "tune.loguniform(1e-3, 1)": "tune.grid_search([0.03, 0.1])",
    "num_samples=20": "num_samples=1",
}
SHOW_RESULTS = """
import json

trials = [
    [each.metrics["test_loss"], str(each.error or ""), len(each.metrics_dataframe)]
    for each in tuner.get_results()
]
print("RESULTS", json.dumps([best.metrics["test_loss"], model.network.features, trials]))
"""


@pytest.fixture
def search():
    """The program of docs/cluster.md that searches for settings, with two short trials."""
    pytest.importorskip(
        "ray.tune", reason="Ray Tune is not installed; install ray[tune]", exc_type=ImportError
    )
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "cluster.md").read_text(), re.M | re.S
    )
    (program,) = [block for block in blocks if "tune.Tuner" in block]
    for usual, small in SMALL.items():
        assert program.count(usual) == 1, f"docs/cluster.md: expected one {usual}"
        program = program.replace(usual, small)
    return program


@pytest.mark.skipif(" " in sys.executable, reason="Ray cannot start trials in a path with a blank")
def test_ray_tune_searches_for_settings(search, cluster, tmp_path):
    random = np.random.default_rng(0)
    rows = random.normal(size=(2000, 5)).round(3)
    labels = rows[:, :3].argmax(axis=1)
    with gzip.open(tmp_path / "covtype.csv.gz", "wt") as file:
        file.write("a,b,c,d,e,label\n")
        for row, label in zip(rows, labels, strict=True):
            print(*row, label, sep=",", file=file)
    done = subprocess.run(
        [sys.executable, "-c", search + SHOW_RESULTS],
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
        json.loads(path.read_text())["test"]["loss"]
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
    job.interrupt()
    assert {event.rows for event in job.events(EpochEnded)} <= {ROWS}
