"""Our own runs: `hogbatch train` or `rehearse` in a process, with a temporary run directory."""

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = (sys.executable, "-m", "hogbatch.cli.main")


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run of `hogbatch train` left."""

    exit_code: int
    stderr: str
    wall_s: float  # of the whole process
    summary: dict[str, Any]  # summary.json; empty if the run wrote none

    @property
    def error(self) -> str | None:
        """One sentence if the process failed."""
        return f"exit code {self.exit_code}: {self.stderr.strip()}" if self.exit_code else None

    @property
    def history(self) -> list[dict[str, Any]]:
        """The evaluations of the run, as :func:`as_tested`."""
        return as_tested(self.summary.get("history", []))

    @property
    def workers(self) -> dict[str, list[int]]:
        """[threads, batch size] by worker."""
        return {w["name"]: [w["threads"], w["batch_size"]] for w in self.summary["workers"]}


def train(flags: Sequence[str], limit_s: float | None = None) -> TrainResult:
    """Run `hogbatch train` with `flags`, as :func:`execute`."""
    return execute([*PROGRAM, "train", *flags], limit_s)


def execute(command: Sequence[str], limit_s: float | None = None) -> TrainResult:
    """Run a command with flags of `train`, quietly, in a run directory that is removed afterwards.

    After `limit_s` of the whole process it is killed, which is an error; its workers then exit.
    """
    with tempfile.TemporaryDirectory() as directory:
        run_dir = Path(directory) / "run"
        began = time.perf_counter()
        try:
            done = subprocess.run(
                [*command, "--run-dir", str(run_dir), "--quiet"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=limit_s,
            )
            code, stderr = done.returncode, done.stderr
        except subprocess.TimeoutExpired:
            code, stderr = -signal.SIGKILL, f"killed after {limit_s:g} s"
        wall_s = round(time.perf_counter() - began, 3)
        path = run_dir / "summary.json"
        summary = json.loads(path.read_text()) if path.exists() else {}
    return TrainResult(code, stderr, wall_s, summary)


def as_tested(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Evaluations on validation rows, which are the test rows of the benchmarks, as such."""
    return [
        {name.replace("validation_", "test_"): value for name, value in point.items()}
        for point in history
    ]


def loss_curve(history: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """[(training seconds, test loss), ...] of the evaluations with a finite loss."""
    found = [(point["seconds"], point["test_loss"]) for point in history]
    return [(seconds, loss) for seconds, loss in found if loss is not None]


def device_totals(workers: Sequence[dict[str, Any]], device: str) -> dict[str, Any] | None:
    """Totals of the workers on `device`; None if there were none.

    `since`: the training seconds at which the first of them was ready, None if none ever was.
    """
    chosen = [worker for worker in workers if worker["device"] == device]
    if not chosen:
        return None
    stale = [w["staleness"] for w in chosen if w.get("staleness") is not None]
    return {
        "rows": sum(worker["rows"] for worker in chosen),
        "updates": sum(worker["updates"] for worker in chosen),
        "share": sum(worker["update_share"] for worker in chosen),
        "busy": statistics.fmean(worker["busy"] for worker in chosen),
        "staleness": statistics.fmean(stale) if stale else None,
        "since": min((w["batch_trace"][0][0] for w in chosen if w["batch_trace"]), default=None),
    }
