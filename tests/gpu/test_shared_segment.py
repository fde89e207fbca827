"""A GPU worker on the shared memory that a run creates, alone and as started by hogbatch train."""

import json
import subprocess
import sys

import pytest

from benchmarks.common.job import events_in
from benchmarks.common.run_history import Life, audit, check_summary
from hogbatch.events.event import Event

pytestmark = pytest.mark.gpu

LIMIT_S = 240  # kernels may have to be compiled first


def test_hogbatch_train_with_a_gpu_worker(cuda, tmp_path):
    run_dir = tmp_path / "run"
    flags = ["--workers", "gpu:0", "--hidden", "8", "--epochs", "2", "--gpu-batch", "256:512"]
    command = [sys.executable, "-m", "hogbatch.cli.main", "train", "a9a", *flags]
    command += ["--run-dir", str(run_dir), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    summary = json.loads((run_dir / "summary.json").read_text())
    life = Life.of(events_in(run_dir, Event))
    (worker,) = summary["workers"]
    assert (worker["device"], worker["rows"]) == ("gpu", summary["rows"])
    rows = summary["rows"] // 2
    assert audit([life], rows) + check_summary(summary, life) == []
    assert not any(summary["faults"].values())
    losses = [point["validation_loss"] for point in summary["history"]]
    assert losses[-1] < 0.5  # the entropy of its labels is 0.55
    assert "cannot be pinned" not in (run_dir / "worker-0.log").read_text()
