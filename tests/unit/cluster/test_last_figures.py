"""The figures of the workers of a server that has ended."""

import json
from dataclasses import asdict

import pytest

from hogbatch.cluster.server_figures import last_figures
from hogbatch.events.records import WorkerRecord
from hogbatch.wire.messages import MAX_LISTED, ServerWorkers


def record(name="cpu-0", left_at=None):
    """A worker as in summary.json."""
    made = WorkerRecord(name, "cpu", 2, 640, 10, 1.0, 0.98765, 64, [(0.0, 64)], [], left_at=left_at)
    return asdict(made)


def summary(*workers):
    return json.dumps({"status": "finished", "rows": 640, "workers": workers}).encode()


def test_they_are_those_of_the_summary():
    (worker,) = last_figures(summary(record())).workers
    assert (worker.name, worker.device, worker.threads) == ("cpu-0", "cpu", 2)
    assert (worker.state, worker.batch_size, worker.busy) == ("trains", 64, 0.9877)
    assert (worker.rows, worker.updates) == (640, 10)
    assert last_figures(summary()) == ServerWorkers()


def test_workers_that_have_left_come_last_and_those_without_room_are_counted():
    present = [record(f"cpu-{n}") for n in range(1, MAX_LISTED)]
    gone = [record("cpu-98", left_at=1.5), record("cpu-99", left_at=2.5)]
    figures = last_figures(summary(*gone, *present))
    assert [each.name for each in figures.workers] == [*(w["name"] for w in present), "cpu-98"]
    assert figures.workers[-1].state == "left" and figures.others == 1


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"workers": 3}',
        summary(record() | {"rows": -1}),
        summary(record() | {"busy": 1.5}),
        summary(record()).replace(b"0.98765", b"1e999"),
    ],
)
def test_a_damaged_summary_has_no_figures(damaged):
    assert last_figures(damaged) is None
