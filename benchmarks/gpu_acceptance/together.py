"""Stage together: benchmarks.heterogeneous on each data set, and `hogbatch profile`."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.common.cases import CASES
from benchmarks.gpu_acceptance.processes import ROOT
from benchmarks.gpu_acceptance.record import Record
from benchmarks.gpu_acceptance.stage import Stage, follow_results


class Part(NamedTuple):
    """How one data set is measured."""

    seconds: int  # of training at most; runs on citeulike last this long
    seeds: int
    share: float  # of the time that is left, relative to those of the later data sets


QUICK: Final = Part(1, 1, 1.0)
PARTS: Final = {
    "w8a": Part(10, 3, 3.0),
    "covtype": Part(20, 1, 2.0),
    "delicious": Part(10, 3, 3.0),
    "imdb": Part(10, 3, 3.0),
    "citeulike": Part(6, 1, 3.0),
}
KINDS: Final = "cpu,gpu,adaptive,hogbatch,pytorch"  # the most valuable first
SAMPLES: Final = ROOT / "hogbatch" / "data" / "samples"


def run(stage: Stage) -> None:
    """Each data set in a separate process; then the profile."""
    if stage.settings.quick:
        quick = ["--kinds", "cpu,adaptive", "--extra=--gpu-batch 64:128"]
        measure(stage, "a9a", SAMPLES, QUICK, quick, stage.left_s)
        return
    measure_all(stage, Path(stage.settings.data or "/nonexistent"))
    stage.attempt("hogbatch profile", partial(profile, stage))


def measure_all(stage: Stage, data: Path) -> None:
    """Every data set that is there; each gets its share of the time that is left."""
    absent = {which: missing_files(data, which) for which in PARTS}
    remaining = [which for which in PARTS if not absent[which]]
    for which, part in PARTS.items():
        if absent[which]:
            reason = f"{absent[which][0]} is missing; give its directory with --data"
            stage.record.skip(which, reason)
        else:
            limit_s = stage.left_s * part.share / sum(PARTS[each].share for each in remaining)
            remaining.remove(which)
            arguments = stage, which, data, part, ["--kinds", KINDS], limit_s
            stage.attempt(which, partial(measure, *arguments))


def missing_files(data: Path, which: str) -> list[str]:
    """The files of a data set that are not in the directory."""
    return [path.name for path in CASES[which].task.files(data) if not path.exists()]


def measure(
    stage: Stage, which: str, data: Path, part: Part, flags: list[str], limit_s: float
) -> None:
    """Record every run as soon as heterogeneous has written it."""
    arguments = ["benchmarks.heterogeneous", str(data), "--only", which]
    arguments += ["--seeds", str(part.seeds), "--max-seconds", str(part.seconds), *flags]
    follow_results(stage, which, arguments, partial(add_run, stage.record), limit_s)


def add_run(record: Record, run: dict[str, Any], about: dict[str, Any]) -> None:
    """Record one run, with the limit of its training time."""
    name = f"{run['set']} {run['name']} seed {run['seed']}"
    value = run | {"limit_s": about["limit_s"]}
    if run["error"]:
        record.fail(name, run["error"], value)
    else:
        record.add(name, value)


def profile(stage: Stage) -> str:
    """The description of this server by `hogbatch profile`."""
    command = [sys.executable, "-m", "hogbatch.cli.main", "profile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, stage.left_s))
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-500:]}")
    return done.stdout
