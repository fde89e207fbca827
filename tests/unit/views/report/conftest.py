"""Runs of a report, made of events."""

from pathlib import Path

import pytest

from hogbatch.events.event import (
    CheckpointWritten,
    OutOfMemory,
    WorkerLost,
    WorkerParked,
    WorkerUnparked,
)
from hogbatch.events.state import condition_of
from hogbatch.views.report.reported import ReportedRun
from hogbatch.views.status.run_files import RunReport
from tests.support.run_events import (
    ended,
    evaluation,
    event,
    joined,
    lease,
    ready,
    started,
    state_after,
)

ENVIRONMENT = {
    "versions": {"hogbatch": "0.1.0", "python": "3.11.7"},
    "processor": "AMD EPYC",
    "cores": 2,
    "logical_cores": 4,
    "memory": 8 << 30,
    "gpus": ["NVIDIA H100"],
    "driver": "580.65.06",
}
TWO_WORKERS = (
    started(environment=ENVIRONMENT),
    joined("cpu-0", "cpu:2"),
    ready("cpu-0", 16),
    joined("gpu-0", "gpu:0"),
    ready("gpu-0", 128),
    lease(1.0, 0, 400, "cpu-0", 16, updates=25),
    lease(1.5, 400, 1000, "gpu-0", 128, updates=5, staleness=5.0),
    evaluation(1.5, 1000, 0.4, utilization={"cpu-0": 0.5, "gpu-0": 0.25}),
    event(CheckpointWritten, 1, 1000, 1.5),
    event(WorkerParked, "cpu-0", "it is slow"),
    lease(2.5, 0, 900, "gpu-0", 256, updates=5, staleness=1.0),
    event(OutOfMemory, "gpu-0", 256, 128),
    event(WorkerUnparked, "cpu-0"),
    lease(3.0, 900, 1000, "cpu-0", 16, updates=6),
    evaluation(3.0, 2000, 0.3, utilization={"cpu-0": 0.1, "gpu-0": 0.5}),
    event(WorkerLost, "cpu-0", "process 7 was killed"),
    ended(seconds=3.0, rows=2000, epochs=2.0),
)


def reported(*events, name="run", damaged=0, **fields):
    """A run of a report after these events."""
    run = state_after(*events)
    run.damaged = damaged
    report = RunReport(Path("runs") / name, run, condition_of(run, None))
    return ReportedRun(name, report, **fields)


@pytest.fixture
def two_workers():
    """A run of a CPU and a GPU to which everything has happened."""
    return reported(*TWO_WORKERS, settings={"data": "a9a", "hidden": [64, 64], "quiet": False})
