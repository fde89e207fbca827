"""The program in processes of its own, on a GPU that the CPU imitates (tests/cuda_on_host)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common.job import WITHIN_S
from benchmarks.gpu_acceptance import packages
from benchmarks.gpu_acceptance.__main__ import main, parse, settle
from benchmarks.gpu_acceptance.budget import REPORT_S, SHARES, SHORTEST_S, limit
from benchmarks.gpu_acceptance.processes import CACHES, cache_variables, environment
from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import ProbeResult

ROOT = Path(__file__).parents[4]
STAND_IN = ROOT / "tests" / "cuda_on_host"
CHECKS = "preflight", "tests", "sanitizer", "cli"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_stages_run_outside_of_the_checkout_and_their_results_are_reported(tmp_path):
    """Those that measure nothing: the programs of the others have tests of their own."""
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance", "--quick"]
    command += ["--stages", ",".join(CHECKS), "--budget", str(5 * WITHIN_S), "--out", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{STAND_IN}"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    for stage in CHECKS:
        found = json.loads((tmp_path / f"{stage}.json").read_text())
        assert found["ended"]["how"] == "finished" and len(found["measurements"]) > 1
        assert found["about"]["cores"] > 0 and found["about"]["settings"]["quick"]
        skipped = [each for each in found["measurements"] if "skipped" in each]
        assert not skipped or stage == "sanitizer", "which is not installed"
    report = (tmp_path / "report.md").read_text()
    assert done.stdout.endswith(report) and report.count("| unknown |") == 5
    assert main(["--stages", "none", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.md").read_text() == report, "from the results of earlier calls"


SLEEPS = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("started", flush=True)
time.sleep(float(sys.argv[1]))
"""
RUNS = """
import os, subprocess, sys, time
from benchmarks.gpu_acceptance import processes

limit_s, wait = float(sys.argv[3]), subprocess.Popen.wait

def wait_when_started(process, timeout=None):
    while timeout == limit_s and not os.path.getsize(sys.argv[1]):
        time.sleep(0.01)
    return wait(process, timeout)

subprocess.Popen.wait = wait_when_started
processes.adopt_orphans()
with open(sys.argv[1], "wb") as log:
    variables = processes.environment(0)
    for seconds, limit in (("1000", limit_s), ("0", 200.0)):
        print(processes.run(["-c", sys.argv[2], seconds], limit, log, variables))
        print(processes.descendants(os.getpid()))
    print(processes.run(["-c", "import os; os.kill(os.getpid(), 9)"], 200.0, log, variables))
    print(processes.run(["-c", "import sys; sys.exit(3)"], 200.0, log, variables))
"""


@pytest.mark.slow
def test_a_stage_ends_at_its_limit_with_everything_that_it_started(tmp_path):
    command = [sys.executable, "-c", RUNS, str(tmp_path / "log"), SLEEPS, "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines() == [
        *("killed after its limit of 1 s", "[]"),
        *("finished", "[]"),
        *("died by signal 9", "exit code 3"),
    ]


# How stages share the time ------------------------------------------------------------------------


def test_all_shares_together_are_the_whole_budget():
    left, given, stages = 573.0, [], list(SHARES)
    assert limit(stages[-1], [], REPORT_S + SHORTEST_S - 0.1) is None
    while stages:
        given.append(limit(stages.pop(0), stages, left))
        left -= given[-1]
    assert sum(given) == pytest.approx(573.0 - REPORT_S)


# What has to be there -----------------------------------------------------------------------------


def test_a_stage_keeps_its_caches_in_a_private_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = cache_variables()
    (root,) = tmp_path.iterdir()
    assert root.stat().st_mode & 0o777 == 0o700
    assert {Path(found[name]).parent for name in CACHES} == {root}
    monkeypatch.setenv("HOGBATCH_CACHE", "/mine")
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    variables = environment(0, found)
    assert variables["HOGBATCH_CACHE"] == "/mine"
    assert variables["CUPY_CACHE_DIR"] == str(root / "cupy")
    root.chmod(0o777)
    with pytest.raises(UsageError, match="set TMPDIR to another directory"):
        cache_variables()


@pytest.mark.parametrize(
    ("visible", "device", "expected"),
    [(None, 0, None), (None, 2, "2"), ("4,5", 1, "5"), ("GPU-a", 0, "GPU-a"), ("3", 1, "1")],
)
def test_a_stage_sees_one_gpu_and_this_checkout(visible, device, expected, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PYTHONPATH", "packages:/other")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = environment(device)
    assert found.get("CUDA_VISIBLE_DEVICES") == expected
    assert found["PYTHONPATH"].split(":") == [str(ROOT), os.path.abspath("packages"), "/other"]


def test_a_package_that_rejects_another_is_reported_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "rejects.py").write_text("raise ImportError('rejects needs NumPy 1.0')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(packages, "BASE", {"rejects": "rejects", "is_not_there": "absent"})
    found = packages.missing(["cli", "step"])
    assert found["rejects"] == "ImportError: rejects needs NumPy 1.0"
    assert found["absent"] == "missing, needed for cli, step"
    assert "  rejects: ImportError: rejects needs NumPy 1.0\n" in packages.advice(found)


def test_the_gpu_is_found_from_a_checkout_that_is_not_installed(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr("benchmarks.gpu_acceptance.__main__.missing", lambda stages: {})
    seen = []

    def find_gpus(timeout):
        seen.append(os.environ.get("PYTHONPATH"))
        return ProbeResult(reason="no device")

    monkeypatch.setattr("hogbatch.kernels.gpu.probe.find_gpus", find_gpus)
    with pytest.raises(UsageError, match="no device"):
        settle(parse(["--out", "results"]))
    assert seen == [str(ROOT)]
