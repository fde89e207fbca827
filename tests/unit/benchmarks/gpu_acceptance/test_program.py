"""The program in processes of its own, on a GPU that the CPU imitates (tests/cuda_on_host)."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.common.job import WITHIN_S
from benchmarks.gpu_acceptance import budget, packages
from benchmarks.gpu_acceptance.__main__ import Program, main, no_gpu, parse, warning
from benchmarks.gpu_acceptance.budget import REPORT_S, SHARES, SHORTEST_S, limit
from benchmarks.gpu_acceptance.processes import CACHES, cache_variables, environment
from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import Gpu, ProbeResult

ROOT = Path(__file__).parents[4]
STAND_IN = ROOT / "tests" / "cuda_on_host"


def records(directory):
    return {path.stem: json.loads(path.read_text()) for path in directory.glob("*.json")}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_stage_runs_outside_of_the_checkout_and_its_results_are_reported(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu_acceptance", "--quick"]
    command += ["--stages", "sanitizer", "--budget", str(3 * WITHIN_S), "--out", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{STAND_IN}"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd="/")
    (found,) = records(tmp_path).values()
    failures = [each for each in found["measurements"] if "error" in each]
    assert (done.returncode, failures) == (0, []), done.stdout + done.stderr
    assert found["ended"]["how"] == "finished" and len(found["measurements"]) > 5
    assert found["about"]["cores"] > 0 and found["about"]["settings"]["quick"]
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


def test_a_stage_gets_its_share_of_what_is_left(monkeypatch):
    monkeypatch.setattr(budget, "SHARES", {"a": 1.0, "b": 3.0})
    assert limit("a", ["b"], REPORT_S + 100) == 25
    assert limit("b", [], REPORT_S + 99) == 99, "time that was not used goes to the later ones"
    assert limit("b", [], REPORT_S + SHORTEST_S - 0.1) is None


def test_all_shares_together_are_the_whole_budget():
    left, given, stages = 573.0, [], list(SHARES)
    assert limit(stages[0], stages[1:], 10_000) == 60, "preflight has a limit of its own"
    while stages:
        given.append(limit(stages.pop(0), stages, left))
        left -= given[-1]
    assert sum(given) == pytest.approx(573.0 - REPORT_S)


def test_the_budget_starts_with_the_program(tmp_path, monkeypatch):
    given = parse(["--budget", "100", "--out", str(tmp_path)])
    monkeypatch.setattr(Program, "_run", lambda self, stage, *others: None)
    Program(given, began=time.monotonic() - 100).run({})
    ends = {stage: each["ended"]["how"] for stage, each in records(tmp_path).items()}
    assert ends == dict.fromkeys(SHARES, "not started: no time left")


# What has to be there -----------------------------------------------------------------------------


def test_missing_packages_are_named_with_the_commands_to_install_them(monkeypatch):
    absent = {"zmq", "pytest_timeout"}
    monkeypatch.setattr(packages, "importable", lambda module: module not in absent)
    assert packages.missing(["cli"]) == {"pyzmq": ["cli"]}
    found = packages.missing(["tests", "together"])
    assert found == {"pyzmq": ["tests", "together"], "pytest-timeout": ["tests"]}
    absent.add("cupy")
    monkeypatch.setattr(packages, "cuda_major", lambda: 12)
    said = packages.advice(packages.missing(["cli"]))
    assert "  pyzmq, for cli" in said and "  nvidia-cublas-cu12, for cli" in said
    for wanted in ("pip download --no-deps", "--find-links wheels --target packages pyzmq cupy"):
        assert wanted in said


@pytest.mark.parametrize(
    ("line", "major"),
    [
        ("| Driver Version: 5.1   CUDA Version: 12.4 |", 12),
        ("| NVIDIA-SMI 610.57.04   CUDA UMD Version: 13.3 |", 13),
        ("CUDA Version: 14.0", 13),
        ("NVIDIA-SMI has failed", 13),
    ],
)
def test_cupy_is_that_of_the_driver(line, major, monkeypatch):
    answer = SimpleNamespace(stdout=line)
    monkeypatch.setattr(subprocess, "run", lambda *command, **given: answer)
    assert packages.cuda_major() == major


@pytest.mark.parametrize(
    ("gpus", "device", "sentence"),
    [
        (2, 1, None),
        (2, 3, "--device 3: no such GPU; there are 2 (0 to 1)"),
        (1, -1, "--device -1: no such GPU; there is 1 (0)"),
        (0, 0, "no driver"),
    ],
)
def test_a_gpu_that_is_not_there_is_named(gpus, device, sentence, monkeypatch):
    found = ProbeResult(tuple(Gpu(n, "A", 1) for n in range(gpus)), "no driver")
    monkeypatch.setattr("hogbatch.kernels.gpu.probe.find_gpus", lambda timeout: found)
    assert no_gpu(device) == sentence


def test_without_a_gpu_or_data_nothing_starts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.gpu_acceptance.__main__.missing", lambda stages: {})
    monkeypatch.setattr("benchmarks.gpu_acceptance.__main__.no_gpu", lambda device: "no GPU here")
    out = tmp_path / "out"
    assert main(["--out", str(out)]) == 2
    assert main(["--data", str(tmp_path / "none"), "--out", str(out)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "gpu_acceptance: no GPU here",
        f"gpu_acceptance: --data {tmp_path / 'none'}: no such directory",
    ]
    given = SimpleNamespace(stages=["cli"], data=None, quick=False)
    assert warning(given).startswith("gpu_acceptance: no data sets found")
    assert not out.exists()


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
