"""Training on a Ray cluster: two machines, which are processes of this one, with a core each."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter

import numpy as np
import pytest

from benchmarks.common.job import WITHIN_S, wait_for
from hogbatch.data.samples import SAMPLES
from tests.support.doc_references import ROOT

ray = pytest.importorskip("ray", reason="Ray is not installed; install hogbatch[ray]")

ROWS = 32_561  # of the training set of a9a
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


@pytest.fixture
def train(job, cluster):
    """Start a run on the two machines with these arguments in addition."""

    def start(*arguments):
        where = ("--cluster", cluster.address, "--servers", 2, "--hidden", 32)
        return job.train("a9a", *where, "--plain", *arguments)

    return start


def merged_rows(job):
    return sum(event["rows"] for event in job.events("servers_merged"))


def test_two_machines_train_one_model_through_the_object_store(job, train):
    process = train("--epochs", 2, "--plane", "relay")
    assert job.finish() == 0, job.said(process)
    summary = job.summary()
    assert summary["rows"] == merged_rows(job) == 2 * ROWS
    assert summary["test"]["loss"] < 0.45
    assert [event["plane"] for event in job.events("plane")] == ["the object store of Ray"]
    assert "2 servers of a Ray cluster, each with cpu:1" in job.printed(process)
    own = [
        json.loads((job.run_dir / "servers" / each / "summary.json").read_text())
        for each in ("server-0", "server-1")
    ]
    assert sum(each["rows"] for each in own) == 2 * ROWS


def test_each_machine_reads_its_own_files(job, cluster):
    data = job.folder / "data"
    data.mkdir()
    with gzip.open(SAMPLES["a9a"].train, "rt") as file:
        lines = file.readlines()
    for number in range(4):
        (data / f"{number}.svm").write_text("".join(lines[number::4]))
    where = ("--cluster", cluster.address, "--servers", 2, "--hidden", 32, "--data-copies", 1)
    process = job.train(data, *where, "--plain", "--epochs", 2, "--test", SAMPLES["a9a"].test)
    assert job.finish() == 0, job.said(process)
    assert job.summary()["rows"] == merged_rows(job) == 2 * ROWS
    assert job.summary()["test"]["loss"] < 0.45


def test_a_malformed_file_is_named_by_the_machine_that_reads_it(job, cluster):
    data = job.folder / "data"
    data.mkdir()
    for number in range(2):
        (data / f"{number}.svm").write_text("+1 1:1\n-1 2:1\n" * 50 + "+1 bad\n" * number)
    where = ("--cluster", cluster.address, "--servers", 2, "--data-copies", 1)
    process = job.train(data, *where, "--plain")
    assert job.finish() == 2
    said = [line for line in job.said(process).splitlines() if line.startswith("hogbatch: ")]
    assert len(said) == 1 and "1.svm:101" in said[0]  # Ray may write other lines


def test_more_servers_than_machines_are_refused(job, cluster):
    process = job.train("a9a", "--cluster", cluster.address, "--servers", 3)
    assert job.finish() == 2
    assert "the Ray cluster has 2 machines with processors" in job.said(process)


SMALL = {  # what the test replaces in the search of docs/cluster.md
    'workers="cpu:2"': 'workers="cpu:1"',
    '{"cpu": 2}': '{"cpu": 1}',
    "max_seconds=30": "epochs=20",
    "tune.loguniform(1e-3, 1)": "tune.grid_search([0.03, 0.1])",
    "num_samples=20": "num_samples=1",
}
SHOW_RESULTS = """
import json

best = {"test_loss": best.metrics["test_loss"], "path": best.path}
trials = [
    {"path": each.path, "error": str(each.error or ""), "reports": len(each.metrics_dataframe)}
    for each in tuner.get_results()
]
print("RESULTS", json.dumps({"best": best, "trials": trials, "features": model.network.features}))
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
    results = json.loads(line.removeprefix("RESULTS "))
    assert results["features"] == 5, "the model is that of the data"
    assert 0 < results["best"]["test_loss"] < np.log(3)
    assert len(results["trials"]) == 2
    losses = {}
    for trial in results["trials"]:
        assert trial["error"] == "" and trial["reports"] >= 2
        (summary,) = (tmp_path / "tune").glob(f"*/{os.path.basename(trial['path'])}/*/summary.json")
        losses[trial["path"]] = json.loads(summary.read_text())["test"]["loss"]
    assert min(losses, key=losses.get) == results["best"]["path"]
    assert min(losses.values()) == results["best"]["test_loss"]


def test_a_machine_that_is_killed_is_replaced_by_one_that_joins(job, train, cluster):
    process = train("--max-seconds", 1000, "--eval-seconds", 1000)
    job.wait_for_event("servers_merged", count=5)
    (lost,) = cluster.worker_nodes
    for kind in lost.all_processes.values():  # with SIGKILL, as if its power were off
        for each in kind:
            os.kill(each.process.pid, signal.SIGKILL)
    job.wait_for_event("worker_lost")
    alone = job.events("servers_merged")[-1]["merge"]
    job.wait_for_event("servers_merged", count=alone + 5)
    cluster.remove_node(lost)
    add_machine(cluster)
    joined = job.wait_for_event("worker_ready", count=3)

    def both_merge():
        assert process.poll() is None, job.said(process)
        last = job.events("servers_merged")[-1]
        return len(last["servers"]) == 2 and joined["worker"] in last["servers"]

    wait_for(both_merge, "the server that has joined takes part in merges")
    process.send_signal(signal.SIGINT)
    assert job.finish() == 130, job.said(process)
    acknowledged = Counter(
        event["epoch"] for event in job.events("epoch") for _ in range(event["rows"])
    )
    assert set(acknowledged.values()) == {ROWS}, "each epoch has each row once"
