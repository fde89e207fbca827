"""Events of a run, and run directories made of them."""

import json
from dataclasses import asdict, replace

import pytest

from hogbatch.events.state import RunState
from hogbatch.machine.process import ProcessIdentity

START = 1_795_444_215.0  # Unix seconds
GONE = asdict(replace(ProcessIdentity.own(), start=0))  # the pid belongs to another process


def event(name, at=0.0, **fields):
    return {"event": name, "at": START + at, **fields}


def started(**changes):
    fields = {
        "hogbatch": "0.1.0",
        "data": "a9a",
        "train_rows": 1000,
        "test_rows": 100,
        "features": 123,
        "sparse": True,
        "network": "123-32-1",
        "loss": "logistic",
        "by_metric": False,
        "epochs": 10,
        "max_seconds": None,
        "patience": 0,
        "target_loss": None,
        "process": asdict(ProcessIdentity.own()),
    }
    return event("started", **fields | changes)


def joined(worker="cpu-0", runs_on="cpu:2"):
    return event("worker_joined", worker=worker, runs_on=runs_on, pid=7)


def ready(worker="cpu-0", batch_size=16):
    return event("worker_ready", worker=worker, limits=[1, 64], batch_size=batch_size)


def lease(seconds, start, stop, worker="cpu-0", batch_size=16, updates=4, **fields):
    fields = {"seconds": seconds, "epoch": 0, "rows": [start, stop], "worker": worker, **fields}
    return event("lease", at=seconds, batch_size=batch_size, updates=updates, **fields)


def evaluation(seconds, rows, test_loss, **changes):
    fields = {
        "seconds": seconds,
        "epochs": rows / 1000,
        "rows": rows,
        "train_loss": 0.5,
        "test_loss": test_loss,
        "test_values": {"accuracy": 0.8},
        "utilization": {},
    }
    return event("evaluation", at=seconds, **fields | changes)


def ended(status="finished", reason="", **fields):
    return event("ended", at=9.0, status=status, reason=reason, **fields)


def own_worker(name="cpu-0", rows=0, **changes):
    """A worker of a server, as the event "server_workers" describes it."""
    fields = {"device": "cpu", "threads": 2, "state": "trains", "batch_size": 64, "busy": 0.5}
    return {"name": name, "rows": rows, "updates": rows // 64, **fields, **changes}


def server_workers(server, *workers, others=0):
    return event("server_workers", worker=server, workers=list(workers), others=others)


TRAINING = (
    *(started(), joined(), ready(), lease(1.0, 0, 400), lease(2.0, 400, 1000)),
    evaluation(2.0, 1000, 0.4, utilization={"cpu-0": 0.5}),
)


def state_after(*events):
    state = RunState()
    for each in events:
        state.apply(each)
    return state


ON_SERVERS = (  # server 0 has two workers and more that are not listed, server 1 has one
    *(started(), joined("server-0", "host-a (cpu:4)"), joined("server-1", "host-b (gpu:0)")),
    *(ready("server-0", 256), ready("server-1", 256)),
    *(lease(2.0, 0, 1280, "server-0", 256, 20), lease(2.0, 1280, 3840, "server-1", 256, 20)),
    server_workers("server-0", own_worker(rows=640), own_worker("cpu-1", 640), others=3),
    server_workers("server-1", own_worker("gpu-0", 2560, device="gpu", updates=20)),
)


@pytest.fixture
def write_run(tmp_path):
    """Create a run directory with these events and other files; return its path."""

    def write(*events, name="run", **files):
        run_dir = tmp_path / name
        run_dir.mkdir()
        (run_dir / "run.json").write_text('{"format": "hogbatch-run-1", "files": []}')
        if events:
            lines = "".join(json.dumps(each) + "\n" for each in events)
            (run_dir / "events.jsonl").write_text(lines)
        for file, content in files.items():
            suffix = ".toml" if file == "config" else ".json"
            (run_dir / f"{file}{suffix}").write_text(content)
        return run_dir

    return write
