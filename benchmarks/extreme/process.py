"""A program in a process of its own, so that neither threads nor memory of two programs mix.

Covers: the process, its answer, the memory of all its processes. `python -m
benchmarks.extreme.process NAME DIRECTORY SETTING SEED` reads the rows from the directory and writes
its answer there.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.common.machine import versions
from benchmarks.common.report import Run, last_line
from benchmarks.extreme.programs import HOGBATCH, PROGRAMS, K, Problem
from benchmarks.peers.contract import Setting

ROOT: Final = Path(__file__).parents[2]
RECALL_ROWS: Final = 500  # for which labels are ranked by all scores, which may take long
SAMPLE_S: Final = 0.1  # between two measurements of memory
PARTS: Final = ("x", "y", "test")  # of a directory: training rows, test rows


def write_rows(directory: Path, **parts: Any) -> None:
    """Write CSR matrices, which any version of SciPy can read, into `directory`."""
    from scipy.sparse import csr_matrix, save_npz

    for name in PARTS:
        save_npz(directory / f"{name}.npz", csr_matrix(parts[name]), compressed=False)


def run(name: str, directory: Path, setting: Setting, seed: int, python: str) -> Run:
    """Train and rank once.

    Returns seconds of training (`train_s`), from the start of the process to the trained model
    (`process_s`), of ranking the test rows (`rank_s`), the peak memory in MiB, the recall of the
    best label if ranking is approximate, and `best` int64[N, K]; or an "error".
    """
    with tempfile.TemporaryDirectory() as answers:
        job = [name, str(directory), json.dumps(setting), str(seed), str(time.time()), answers]
        process = subprocess.Popen(
            [
                sys.executable if name == HOGBATCH else python,
                "-m",
                "benchmarks.extreme.process",
                *job,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAMPLE_S)
        assert process.stderr
        with process.stderr as stream:
            error = stream.read()
        if process.returncode:
            return {"error": last_line(error) or f"exit code {process.returncode}"}
        answer: Run = json.loads((Path(answers) / "answer.json").read_text())
        best = np.load(Path(answers) / "best.npy")
    return answer | {"memory_mib": round(peak / 1024), "best": best}


def memory(root: int) -> int:
    """KiB of a process and its descendants; memory that n processes share counts 1/n for each."""
    total, pids = 0, [root]
    while pids:
        pid = Path(f"/proc/{pids.pop()}")
        with suppress(OSError, StopIteration):  # it has ended
            lines = (pid / "smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            for task in (pid / "task").iterdir():
                pids += map(int, (task / "children").read_text().split())
    return total


def main(name: str, directory: str, setting: str, seed: str, started: str, answers: str) -> None:
    """Answer one job."""
    from scipy.sparse import load_npz

    program = PROGRAMS[name]
    import_module(program.module)
    x, y, test = (load_npz(Path(directory) / f"{part}.npz") for part in PARTS)
    with tempfile.TemporaryDirectory() as scratch:
        problem = Problem(x, y, Path(scratch), json.loads(setting), int(seed))
        began = time.perf_counter()
        trained = program.train(problem)
        seconds = trained.seconds or time.perf_counter() - began
        answer: Run = {
            "train_s": round(seconds, 3),
            "process_s": round(time.time() - float(started), 3),
        }
        trained.rank(test[:K])  # compilation and first use
        began = time.perf_counter()
        best = trained.rank(test)
        answer["rank_s"] = round(time.perf_counter() - began, 3)
        answer |= versions(program.package)
        if trained.exact:
            exact = trained.exact(test[:RECALL_ROWS])[:, 0]
            answer["recall"] = float((best[:RECALL_ROWS, 0] == exact).mean())
    np.save(Path(answers) / "best.npy", best)
    (Path(answers) / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
