"""Stage together: benchmarks.heterogeneous on each data set, and the description of the server."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu_acceptance.processes import ROOT
from benchmarks.gpu_acceptance.record import Record
from benchmarks.gpu_acceptance.stage import Stage

SETS: Final = {  # seconds of training at most; the runs of citeulike last as long
    "w8a": 10,
    "covtype": 20,
    "delicious": 10,
    "imdb": 10,
    "citeulike": 8,
}
FILES: Final = {
    "w8a": ("w8a.svm.gz",),
    "covtype": ("covtype.csv.gz",),
    "delicious": ("delicious-train.xmc.gz", "delicious-test.xmc.gz"),
    "imdb": ("imdb-train.svm.gz", "imdb-test.svm.gz"),
    "citeulike": ("citeulike-train.xmc.gz", "citeulike-test.xmc.gz"),
}
KINDS: Final = "cpu,gpu,adaptive,hogbatch,pytorch"  # the most valuable first
SAMPLES: Final = ROOT / "hogbatch" / "data" / "samples"


def run(stage: Stage) -> None:
    """Each data set once, in a process of its own; then the profile."""
    if stage.settings.quick:
        quick = ["--kinds", "cpu,adaptive", "--extra", "gpu_batch=64:128"]
        measure(stage, "a9a", SAMPLES, 1, quick)
    else:
        data = Path(stage.settings.data or "/nonexistent")
        for which, seconds in SETS.items():
            if absent := [name for name in FILES[which] if not (data / name).exists()]:
                stage.record.skip(which, f"{absent[0]} is missing; give its directory with --data")
            elif stage.left_s <= 0:
                stage.record.skip(which, "no time left")
            else:
                with stage.failures_recorded(which):
                    measure(stage, which, data, seconds, ["--kinds", KINDS])
    profile(stage)


def measure(stage: Stage, which: str, data: Path, seconds: int, flags: list[str]) -> None:
    """Record every run as soon as heterogeneous has written it."""
    with tempfile.TemporaryDirectory() as directory:
        runs = RunFile(Path(directory) / "out.json", stage.record)
        command = ["-m", "benchmarks.heterogeneous", str(data), "--only", which, "--seeds", "1"]
        command += ["--max-seconds", str(seconds), "--json", str(runs.path), *flags]
        code = stage.follow_python(command, runs.poll)
    if code is None:
        stage.record.fail(which, "not ended in time")
    elif code not in (0, 1):  # 1: a run failed, which its own record tells
        stage.record.fail(which, f"exit code {code}; see the log")
    else:
        stage.record.add(which, {"runs": runs.count})


class RunFile:
    """Transfers the runs of heterogeneous to the record."""

    def __init__(self, path: Path, record: Record) -> None:
        self.path, self._record = path, record
        self.count = 0

    def poll(self) -> None:
        """Record the runs that are new."""
        if not self.path.exists():
            return
        content: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        limit_s = content["about"]["limit_s"]
        for run in content["results"][self.count :]:
            self.count += 1
            name = f"{run['set']} {run['name']} seed {run['seed']}"
            value = run | {"limit_s": limit_s}
            if run["error"]:
                self._record.fail(name, run["error"], value)
            else:
                self._record.add(name, value)


def profile(stage: Stage) -> None:
    """Record the description of the server by `hogbatch profile`, if there is that command."""
    helped = hogbatch("--help", timeout_s=30.0)
    commands = {line.split()[0] for line in helped.stdout.splitlines() if line.startswith("  ")}
    if "profile" not in commands:
        stage.record.skip("hogbatch profile", "not available")
    elif stage.left_s <= 0:
        stage.record.skip("hogbatch profile", "no time left")
    else:
        with stage.failures_recorded("hogbatch profile"):
            done = hogbatch("profile", timeout_s=stage.left_s)
            if done.returncode != 0:
                raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-500:]}")
            stage.record.add("hogbatch profile", done.stdout)


def hogbatch(*arguments: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Run the command line of this checkout."""
    command = [sys.executable, "-m", "hogbatch.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
