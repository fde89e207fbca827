"""Events of a run, and the state after them."""

import json
from dataclasses import asdict, replace

from hogbatch.events.event import (
    Ended,
    Evaluation,
    LeaseDone,
    Started,
    WorkerJoined,
    WorkerReady,
    WorkersOfServer,
)
from hogbatch.events.state import RunState
from hogbatch.machine.process import ProcessIdentity
from hogbatch.wire.messages import WorkerFigures

START = 1_795_444_215.0  # Unix seconds
GONE = asdict(replace(ProcessIdentity.own(), start=0))  # the pid belongs to another process


def event(kind, *values, at=0.0, **fields):
    return kind(*values, at=START + at, **fields)


def started(**changes):
    fields = {
        "data": "a9a",
        "train_rows": 1000,
        "validation_rows": 100,
        "test_rows": 50,
        "sparse": True,
        "network": "123-32-1",
        "loss": "logistic",
        "epochs": 10,
        "process": asdict(ProcessIdentity.own()),
    }
    return event(Started, **fields | changes)


def joined(worker="cpu-0", runs_on="cpu:2"):
    return event(WorkerJoined, worker, runs_on, 7)


def ready(worker="cpu-0", batch_size=16):
    return event(WorkerReady, worker, (1, 64), batch_size)


def lease(seconds, start, stop, worker="cpu-0", batch_size=16, updates=4, **fields):
    values = seconds, 0, worker, batch_size, updates
    return event(LeaseDone, *values, rows=[start, stop], at=seconds, **fields)


def evaluation(seconds, rows, validation_loss, *, train_loss=0.5, **changes):
    fields = {"validation_values": {"accuracy": 0.8}, **changes}
    values = seconds, rows / 1000, rows, train_loss, validation_loss
    return event(Evaluation, *values, at=seconds, **fields)


def ended(status="finished", reason="", **fields):
    return event(Ended, status, reason, at=9.0, **fields)


def own_worker(name="cpu-0", rows=0, **changes):
    """A worker of a server, as WorkersOfServer describes it."""
    fields = {"device": "cpu", "threads": 2, "state": "trains", "batch_size": 64, "busy": 0.5}
    fields |= {"name": name, "rows": rows, "updates": rows // 64}
    return WorkerFigures(**fields | changes)


def server_workers(server, *workers, others=0):
    return event(WorkersOfServer, server, list(workers), others)


def lines_of(*events):
    """The events as in events.jsonl."""
    lines = ({"event": each.name, "at": each.at, **each.fields} for each in events)
    return "".join(json.dumps(line) + "\n" for line in lines)


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
