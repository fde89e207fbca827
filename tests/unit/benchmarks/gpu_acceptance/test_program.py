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

from benchmarks.common.job import command_line, wait_for
from benchmarks.gpu_acceptance.__main__ import Program, main, no_gpu, parse, warning
from benchmarks.gpu_acceptance.budget import SHARES
from benchmarks.gpu_acceptance.packages import BASE, FOR_TESTS, cuda_major, cupy_packages, missing
from benchmarks.gpu_acceptance.processes import CACHES, cache_variables, descendants, environment
from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import Gpu, ProbeResult

ROOT = Path(__file__).parents[4]
STAND_IN = ROOT / "tests" / "cuda_on_host"
LIMIT_S = 500
# Of the program, which divides it among its stages: one of them compiles for a minute if the cache
# of kernels is empty and other programs load the machine, and the others need little.
BUDGET_S = 3 * LIMIT_S

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def start(*flags, python=(), paths=(ROOT, STAND_IN), **variables):
    """Start the program with small sizes, outside of the checkout."""
    command = [sys.executable, *python, "-m", "benchmarks.gpu_acceptance", "--quick"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **variables}
    return subprocess.Popen(
        [*command, *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd="/",
    )


def end(process):
    """Its exit code, stdout and stderr; it is killed if it takes too long."""
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    return process.returncode, out, err


def records(directory):
    return {path.stem: json.loads(path.read_text()) for path in directory.glob("*.json")}


@needs_compiler
@pytest.mark.slow
def test_all_stages_from_end_to_end(tmp_path):
    code, out, err = end(start("--budget", BUDGET_S, "--out", tmp_path))
    files = {path.name for path in tmp_path.iterdir()}
    found = records(tmp_path)
    failures = [each for r in found.values() for each in r["measurements"] if "error" in each]
    assert (code, failures) == (0, []), out + err + (tmp_path / "log.txt").read_text()
    assert files == {*(f"{stage}.json" for stage in SHARES), "log.txt", "report.md"}
    assert len(files) <= 8
    assert {stage: each["ended"]["how"] for stage, each in found.items()} == dict.fromkeys(
        SHARES, "finished"
    )
    for stage, each in found.items():
        assert each["about"]["cores"] > 0 and each["about"]["settings"]["quick"]
        assert len(each["measurements"]) > 1, stage
    names = [each["name"] for each in found["cli"]["measurements"]]
    assert names[0] == "a9a gpu:0" and "a9a, GPU worker killed" in names
    report = (tmp_path / "report.md").read_text()
    assert out.endswith(report) and report.count("| unknown |") == 5
    # The results of all stages are kept when one is repeated, or only the report.
    assert main(["--stages", "none", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.md").read_text() == report


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
    assert (tmp_path / "log").read_text() == "started\nstarted\n"


def test_killing_the_program_also_kills_its_stage(tmp_path):
    sleeps = "import time; print('started', flush=True); time.sleep(1000)"
    log = tmp_path / "log"
    command = [sys.executable, "-c", RUNS, str(log), sleeps, "1000"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: log.exists() and log.read_text(), "the stage has started")
        stage, *_ = descendants(process.pid)
        process.kill()
        wait_for(lambda: command_line(stage) == b"", "the stage has ended")


def test_missing_packages_are_named_with_the_commands_to_install_them(tmp_path):
    out_dir = tmp_path / "out"
    without_driver = {"PATH": str(tmp_path)}
    code, out, err = end(start("--out", out_dir, python=("-S",), paths=[ROOT], **without_driver))
    assert (code, out) == (2, "")
    for package in (*BASE.values(), *FOR_TESTS.values(), "cupy-cuda13x"):
        assert f"  {package}, for " in err
    download = "pip download --no-deps --dest wheels --only-binary :all: --python-version 3."
    assert download in err
    assert "pip install --no-deps --no-index --find-links wheels --target packages" in err
    assert '-m zipfile -e "$w" packages; done' in err
    assert not out_dir.exists()


def test_only_what_the_stages_need_has_to_be_there(monkeypatch):
    absent = {"zmq", "pytest_timeout", "cuda.pathfinder"}
    monkeypatch.setattr(
        "benchmarks.gpu_acceptance.packages.importable", lambda module: module not in absent
    )
    base = {"pyzmq": ["cli"], "cuda-pathfinder": ["cli"]}
    assert missing(["cli"]) == base
    found = missing(["tests", "together"])
    assert (found["pytest-timeout"], found["pyzmq"]) == (["tests"], ["tests", "together"])


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A function that puts an nvidia-smi first on PATH which prints a line."""

    def put(line):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\necho '{line}'\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


@pytest.mark.parametrize(
    ("line", "major"),
    [
        ("| Driver Version: 5.1   CUDA Version: 12.4 |", 12),
        ("| NVIDIA-SMI 610.57.04   CUDA UMD Version: 13.3 |", 13),
        ("CUDA Version: 14.0", 13),
        ("NVIDIA-SMI has failed", 13),
    ],
)
def test_cupy_is_that_of_the_driver(line, major, smi):
    smi(line)
    assert cuda_major() == major


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    """A function that creates files, in "cuda" of a toolkit and "site" of Python packages."""

    def put(*paths):
        for path in paths:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()

    put("site/nvidia/other/file")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "cuda"))
    monkeypatch.setattr("benchmarks.gpu_acceptance.packages.USUAL_TOOLKIT", "/nonexistent")
    spec = SimpleNamespace(submodule_search_locations=[tmp_path / "site" / "nvidia"])
    monkeypatch.setattr("benchmarks.gpu_acceptance.packages.find_spec", lambda name: spec)
    return put


def test_cupy_comes_with_the_libraries_that_are_not_there(libraries):
    all_of = list(cupy_packages(12))
    assert all_of[:2] == ["cupy-cuda12x", "nvidia-cublas-cu12"] and len(all_of) == 9
    libraries("site/nvidia/cublas/lib/libcublas.so.12", "site/nvidia/cu13/lib/libcusolver.so.12")
    assert list(cupy_packages(12)) == [name for name in all_of if "cublas" not in name]
    found = list(cupy_packages(13))
    assert "nvidia-cublas" in found and "nvidia-cusolver" not in found
    libraries("cuda/lib64/libcudart.so.12", "cuda/lib64/libcufft.so.11")
    left = set(all_of) - {f"nvidia-{name}-cu12" for name in ("cublas", "cuda-runtime", "cufft")}
    assert set(cupy_packages(12)) == left
    assert "nvidia-cufft" in list(cupy_packages(13))  # a toolkit of another version


def test_without_a_gpu_nothing_starts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.gpu_acceptance.__main__.missing", lambda stages: {})
    monkeypatch.setattr("benchmarks.gpu_acceptance.__main__.no_gpu", lambda device: "no GPU here")
    assert main(["--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "gpu_acceptance: no GPU here\n"
    assert not (tmp_path / "out").exists()


GPUS = ProbeResult((Gpu(0, "A", 1), Gpu(1, "B", 1)))


@pytest.mark.parametrize(
    ("found", "device", "sentence"),
    [
        (GPUS, 1, None),
        (GPUS, 3, "--device 3: no such GPU; there are 2 (0 to 1)"),
        (GPUS, -1, "--device -1: no such GPU; there are 2 (0 to 1)"),
        (ProbeResult(GPUS.devices[:1]), 1, "--device 1: no such GPU; there is 1 (0)"),
        (ProbeResult(reason="no driver"), 0, "no driver"),
    ],
)
def test_a_gpu_that_is_not_there_is_named(found, device, sentence, monkeypatch):
    monkeypatch.setattr("hogbatch.kernels.gpu.probe.find_gpus", lambda timeout: found)
    assert no_gpu(device) == sentence


def test_a_missing_data_directory_is_an_error(tmp_path, capsys):
    absent = tmp_path / "none"
    assert main(["--data", str(absent), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said == f"gpu_acceptance: --data {absent}: no such directory\n"


@pytest.mark.parametrize(
    ("stages", "data", "quick", "warned"),
    [
        (["together"], None, False, True),
        (["cli"], None, False, True),
        (["together"], ROOT, False, False),
        (["preflight", "step"], None, False, False),
        (["together"], None, True, False),
    ],
)
def test_a_run_without_data_sets_is_announced(stages, data, quick, warned):
    given = SimpleNamespace(stages=stages, data=data, quick=quick)
    assert warning(given).startswith("gpu_acceptance: no data sets found") == warned


def test_the_budget_starts_with_the_program(tmp_path, monkeypatch):
    given = parse(["--budget", "100", "--out", str(tmp_path)])
    monkeypatch.setattr(Program, "_run", lambda self, stage, *others: None)
    Program(given, began=time.monotonic() - 100).run({})
    ends = {stage: each["ended"]["how"] for stage, each in records(tmp_path).items()}
    assert ends == dict.fromkeys(SHARES, "not started: no time left")


def test_a_stage_keeps_its_caches_in_a_private_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = cache_variables()
    (root,) = tmp_path.iterdir()
    assert root.stat().st_mode & 0o777 == 0o700
    assert found["PYTHONDONTWRITEBYTECODE"] == "1"
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
