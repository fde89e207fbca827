"""A GPU worker on the shared memory that a run creates, alone and as started by hogbatch train."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks.common.run_history import Life, audit, check_summary
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.fence import Fences
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import ROWS, Rehearsal, epochs

pytestmark = pytest.mark.gpu

LIMIT_S = 240  # kernels may have to be compiled first


@pytest.fixture
def segment():
    """The shared segment of a run of the tests' network with Adagrad, which has a slot."""
    given = assignment(examples(ROWS), optimizer="adagrad")
    layout = arrange(
        SharedModel.fields(given.network.parameters, 1), EpochOrders.fields(ROWS), Fences.fields()
    )
    segment = Segment.create("shared", layout)
    yield segment
    segment.close()


def fetch(device, array):
    """A copy of `array` that has been on the device."""
    back = np.empty_like(array)
    device.to_host(device.to_device(array), back)
    return back


def test_arrays_beside_a_registered_model_are_copied(cuda, segment):
    model, orders = SharedModel.of(segment), EpochOrders.attach(segment)
    for number, array in enumerate((model.params, model.first, orders.even, orders.odd)):
        array[:] = np.random.default_rng(number).integers(0, 1 << 20, array.size)
    assert cuda.pin(model.memory)
    try:
        for array in (model.params, model.first, orders.even, orders.odd):
            assert_array_equal(fetch(cuda, array), array)
    finally:
        cuda.unpin(model.memory)


@pytest.fixture
def nothing_measured(tmp_path, monkeypatch):
    """Use an empty cache, so that the engine measures its device."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))


def test_an_engine_trains_in_a_segment(make_cuda, segment, nothing_measured):
    device, given = make_cuda(), assignment(examples(ROWS), optimizer="adagrad")
    model, orders = SharedModel.of(segment), EpochOrders.attach(segment)
    given.network.initialise(model.params, seed=0)
    for number in range(2):
        orders.row_order(number)[:] = given.orders.row_order(number)
    before = model.params.copy()
    rig = Rehearsal(replace(given, model=model, orders=orders), device=device)
    try:
        reports = rig.do(*epochs(6))
    finally:
        device.unpin(model.memory)  # the segment is unmapped after the test
    assert sum(report.rows for report in reports) == 6 * ROWS
    losses = [report.loss for report in reports]
    assert losses[-1] < 0.9 * losses[0]
    assert np.isfinite(model.params).all() and (model.params != before).any()
    assert not any(report.skipped for report in reports)


def test_hogbatch_train_with_a_gpu_worker(cuda, tmp_path):
    run_dir = tmp_path / "run"
    flags = ["--workers", "gpu:0", "--hidden", "8", "--epochs", "2", "--gpu-batch", "256:512"]
    command = [sys.executable, "-m", "hogbatch.cli.main", "train", "a9a", *flags]
    command += ["--run-dir", str(run_dir), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    summary = json.loads((run_dir / "summary.json").read_text())
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    life = Life.of(events)
    (worker,) = summary["workers"]
    assert (worker["device"], worker["rows"]) == ("gpu", summary["rows"])
    rows = summary["rows"] // 2
    assert audit([life], rows) + check_summary(summary, life) == []
    assert not any(summary["faults"].values())
    losses = [point["test_loss"] for point in summary["history"]]
    assert losses[-1] < 0.5  # the entropy of its labels is 0.55
    assert "cannot be pinned" not in (run_dir / "worker-0.log").read_text()
