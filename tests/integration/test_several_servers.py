"""Training on several servers, which are processes of this machine here."""

import json
import os
import signal
from collections import defaultdict

import numpy as np
import pytest

from hogbatch.cluster.planes import nixl
from hogbatch.errors import NoWorkers
from hogbatch.events.event import (
    CheckpointWritten,
    Ended,
    EpochEnded,
    Event,
    LeaseDone,
    PlaneChosen,
    ServersMerged,
    WorkerJoined,
    WorkerLeft,
    WorkerLost,
    WorkerReady,
    WorkersOfServer,
)
from hogbatch.events.names import MODEL
from tests.support.fault_injection import ENDLESS, ROWS, wait_for

LOCAL = ("--cluster", "local", "--servers", 2, "--per-server", "cpu:1", "--hidden", 32)


def check_that_rows_are_trained_on_once(job, rows=ROWS):
    """Check that epochs that have ended have each row once, and the last one none twice.

    What a server has trained on that was lost with it does not count. Returns how many epochs have
    ended.
    """
    counts = defaultdict(lambda: np.zeros(rows, np.int8))  # of each row, by epoch
    for event in job.events(Event):
        if isinstance(event, LeaseDone):
            first, last = event.rows
            counts[event.epoch][first:last] += 1
        elif isinstance(event, WorkerLeft):
            for first, last in event.reissued:
                counted = counts[event.epoch][first:last]
                counted[counted > 0] -= 1
    ended = [event.epoch for event in job.events(EpochEnded)]
    assert ended == list(range(len(ended))) and all(counts[epoch].min() == 1 for epoch in ended)
    assert all(counted.max() <= 1 for counted in counts.values())
    assert sum(each.rows for each in job.events(ServersMerged)) == job.summary()["rows"]
    return len(ended)


@pytest.fixture
def train(job):
    """Start a run on two servers with these arguments in addition."""

    def start(*arguments, **env):
        return job.train("a9a", *LOCAL, "--run-dir", job.run_dir, "--plain", *arguments, **env)

    return start


@pytest.mark.parametrize("plane", ["relay", "nixl"])
def test_two_servers_train_one_model(job, train, main, plane, missing):
    if plane == "nixl" and (why := nixl.unavailable()):
        missing("nixl", why)
    train("--epochs", 3, "--plane", plane, "--metric", "auc", "--threshold", "f1")
    assert job.finish() == 0
    summary = job.summary()
    found = json.loads(main("evaluate", job.run_dir / MODEL, "a9a", "--json").stdout)
    for name in ("auc", "average_precision", "f1", "brier"):
        tested = summary["test"]["values"][name]
        assert tested == pytest.approx(found[name], abs=1e-5), "from the scores of both"
    assert summary["validation"]["metric"] == "auc" and 0 < summary["threshold"] != 0.5
    assert summary["rows"] == 3 * ROWS and summary["servers"] == 2
    assert summary["test"]["loss"] < 0.40
    assert {each["device"] for each in summary["workers"]} == {"server"}
    assert all(each["rows"] > 0 for each in summary["workers"])
    assert check_that_rows_are_trained_on_once(job) == 3
    (moved,) = job.events(PlaneChosen)
    assert moved.plane == ("NIXL (UCX)" if plane == "nixl" else "the process that trains")
    rows = 0
    for server in summary["workers"]:
        folder = job.run_dir / "servers" / server["name"]
        own = json.loads((folder / "summary.json").read_text())
        assert own["rows"] == server["rows"], "the folder is named after the worker"
        rows += own["rows"]
        assert own["status"] == "finished" and own["workers"][0]["name"] == "cpu-0"
        assert (folder / "events.jsonl").exists() and (folder / "worker-0.log").exists()
    assert rows == summary["rows"]


def at_start_of_python(job, code):
    """The environment of processes that run `code` when they start."""
    (job.folder / "sitecustomize.py").write_text(code)
    paths = [str(job.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


# Python imports it at its start. Servers print what they answer when they are given a model.
PRINT_LOADED = """
import sys

if "hogbatch.cluster.server" in sys.orig_argv:
    from hogbatch.cluster.model_merges import ModelMerges

    load = ModelMerges._load

    def printed(self):
        answer = load(self)
        print(answer, file=sys.stderr, flush=True)
        return answer

    ModelMerges._load = printed
"""


def test_servers_begin_with_the_initial_weights_of_the_run(job):
    """Else what workers have prepared for their own, such as hash tables, would be made twice.

    With hashed outputs and inputs as small as these, the initial weights depend on the inputs.
    """
    data = job.folder / "small.svm"
    data.write_text("".join(f"{row % 20} {row % 7 + 1}:0.001 9:0.002\n" for row in range(500)))
    flags = ("--epochs", 1, "--scale", "none", "--output", "lsh")
    job.train(data, *LOCAL, *flags, **at_start_of_python(job, PRINT_LOADED))
    assert job.finish() == 0
    for server in ("server-0", "server-1"):
        log = (job.run_dir / "servers" / server / "server.log").read_text()
        assert "Loaded(changed=False)" in log


def test_status_and_report_show_the_workers_of_each_server(job, train, main):
    def both_train():
        found = json.loads(main("status", job.run_dir, "--json").stdout)["workers"]
        own = [each["workers"] for each in found]
        trains = [bool(one and one[0]["rows_per_second"]) for one in own]
        return found if trains == [True, True] else None

    train(*ENDLESS, "--eval-seconds", 1000)
    job.wait_for_event(WorkersOfServer)
    for server in wait_for(both_train, "both servers tell about workers that train"):
        (worker,) = server["workers"]
        assert (worker["name"], worker["device"], worker["state"]) == ("cpu-0", "cpu:1", "trains")
        assert worker["batch_size"] > 0 and 0.0 < worker["busy"] <= 1.0
    lines = main("status", job.run_dir).stdout.splitlines()
    table = [line for line in lines if line.lstrip().startswith(("server-", "cpu-"))]
    names = ["server-0", "  cpu-0", "server-1", "  cpu-0"]
    assert [line[:10].rstrip() for line in table] == names

    job.interrupt()
    for server in json.loads(main("status", job.run_dir, "--json").stdout)["workers"]:
        (worker,) = server["workers"]
        own = worker["rows"], worker["updates"]
        assert own == (server["rows"], server["updates"]), "the last figures are those of the end"
    assert isinstance(job.events(Event)[-1], Ended)
    assert job.summary()["status"] == "stopped"
    assert (job.run_dir / "model.safetensors").exists()
    wait_for(lambda: not job.leftovers(), "nothing is left of the run")
    assert main("report", job.run_dir).returncode == 0
    page = (job.run_dir / "report.html").read_text()
    assert page.count('class="beneath">cpu-0<') == 2


def test_models_can_be_averaged_and_their_mean_kept(job, train):
    train("--epochs", 2, "--server-merge", "average", "--average", "on")
    assert job.finish() == 0
    assert job.summary()["test"]["loss"] < 0.55  # 0.32 to 0.40 here; 0.69 if untrained


def test_a_run_is_continued_on_several_servers_and_on_one_again(job):
    job.train("a9a", "--epochs", 1, "--workers", "cpu:1")
    assert job.finish() == 0
    several = ("local", "--servers", 2, "--per-server", "cpu:1")
    for epochs, where in ((2, several), (3, ("none",))):
        flags = ("--resume", job.run_dir, "--epochs", epochs, "--plain", "--cluster", *where)
        job.coordinator = job._start("hogbatch.cli.main", "train", *flags)
        assert job.finish() == 0, job.said(job.coordinator)
        assert job.summary()["rows"] == epochs * ROWS
    devices = [each["device"] for each in job.summary()["workers"]]
    assert devices == ["cpu", "server", "server", "cpu"]
    assert job.summary()["test"]["loss"] < 0.40


def test_a_killed_server_is_replaced_and_every_row_is_trained_on_once(job, train):
    train(*ENDLESS)
    job.wait_for_event(ServersMerged, count=5)
    victim = job.events(WorkerJoined)[0]
    os.kill(victim.pid, signal.SIGKILL)
    lost = job.wait_for_event(WorkerLost)
    assert lost.worker == victim.worker
    # the other server may notice it first, in a merge
    assert "was killed by SIGKILL" in lost.reason or "cannot reach it" in lost.reason
    third = job.wait_for_event(WorkerReady, count=3)  # it replaces the killed one
    job.wait_for_event(LeaseDone, worker=third.worker)
    job.end_of_next_epoch()
    job.end_of_next_epoch()
    job.interrupt()
    check_that_rows_are_trained_on_once(job)
    assert job.summary()["test"]["loss"] < 0.40


def test_a_run_whose_servers_are_all_killed_keeps_its_last_copy_of_their_model(job, train):
    process = train(*ENDLESS, "--eval-seconds", 1000)
    job.wait_for_event(CheckpointWritten)
    for joined in job.events(WorkerJoined):
        os.kill(joined.pid, signal.SIGKILL)
    assert job.finish() == NoWorkers.exit_code
    saved = f"the model kept so far is in {job.run_dir}/model.safetensors"
    last = job.said(process).splitlines()[-1]
    assert last.startswith("hogbatch: all servers that had the model are lost (")
    assert last.endswith(f"; {saved}; continue with --resume {job.run_dir}")
    assert (job.run_dir / "model.safetensors").exists() and job.summary()["saved"] is None


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--servers", 0), "from 1 to 128"),
        (("--per-server", "tpu:1"), "workers as in cpu:8,gpu:all"),
        (("--workers", "cpu:2"), "--workers has no meaning with --cluster"),
        (("--deterministic",), "--deterministic has no meaning with --cluster"),
        (("--cluster", "nowhere:1"), "--cluster nowhere:1"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(main, tmp_path, flags, expected):
    done = main("train", "a9a", *LOCAL, "--run-dir", tmp_path / "run", *flags)
    assert done.returncode == 2
    assert expected in done.stderr and len(done.stderr.splitlines()) == 1
