"""The program in processes of its own, on a GPU that the CPU imitates (tests/cuda_on_host)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common.job import command_line, wait_for
from benchmarks.gpu_acceptance.__main__ import main
from benchmarks.gpu_acceptance.budget import SHARES
from benchmarks.gpu_acceptance.packages import BASE, advice, missing
from benchmarks.gpu_acceptance.processes import descendants, environment

ROOT = Path(__file__).parents[4]
STAND_IN = ROOT / "tests" / "cuda_on_host"
LIMIT_S = 250

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def start(*flags, python=(), paths=(ROOT, STAND_IN)):
    """Start the program with small sizes, outside of the checkout."""
    command = [sys.executable, *python, "-m", "benchmarks.gpu_acceptance", "--quick"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
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
    code, out, err = end(start("--budget", LIMIT_S, "--out", tmp_path))
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


def workers_of(process):
    """Descendants of the program that are GPU workers."""
    return [pid for pid in descendants(process.pid) if b"workers.gpu" in command_line(pid)]


@needs_compiler
@pytest.mark.slow
def test_a_program_that_is_stopped_keeps_what_was_measured(tmp_path):
    process = start("--stages", "cli,step", "--budget", 1000, "--out", tmp_path)
    try:
        wait_for(
            lambda: records(tmp_path).get("cli", {}).get("measurements"), "one run is recorded"
        )
        wait_for(lambda: workers_of(process), "the next one trains")
        alive = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        code, out, _ = end(process)
    finally:
        process.kill()
    assert code == 1
    found = records(tmp_path)
    assert found["cli"]["ended"]["how"] == "interrupted"
    assert found["cli"]["measurements"][0].keys() == {"name", "value", "at"}
    assert found["step"]["ended"]["how"] == "not started: interrupted by SIGTERM"
    assert "| cli | interrupted |" in out and out.endswith((tmp_path / "report.md").read_text())
    assert [pid for pid in alive if command_line(pid)] == []
    assert len(list(tmp_path.iterdir())) == 4


SLEEPS = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("started", flush=True)
time.sleep(float(sys.argv[1]))
"""
RUNS = """
import os, sys
from benchmarks.gpu_acceptance import processes
processes.adopt_orphans()
with open(sys.argv[1], "wb") as log:
    variables = processes.environment(0)
    for seconds in ("1000", "0"):
        print(processes.run(["-c", sys.argv[2], seconds], 5.0, log, variables))
        print(processes.descendants(os.getpid()))
    print(processes.run(["-c", "import os; os.kill(os.getpid(), 9)"], 5.0, log, variables))
    print(processes.run(["-c", "import sys; sys.exit(3)"], 5.0, log, variables))
"""


@pytest.mark.slow
def test_a_stage_ends_at_its_limit_with_everything_that_it_started(tmp_path):
    command = [sys.executable, "-c", RUNS, str(tmp_path / "log"), SLEEPS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines() == [
        *("killed after its limit of 5 s", "[]"),
        *("finished", "[]"),
        *("died by signal 9", "exit code 3"),
    ]
    assert (tmp_path / "log").read_text() == "started\nstarted\n"


def test_killing_the_program_also_kills_its_stage(tmp_path):
    sleeps = "import time; print('started', flush=True); time.sleep(1000)"
    log = tmp_path / "log"
    command = [sys.executable, "-c", RUNS, str(log), sleeps]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: log.exists() and log.read_text(), "the stage has started")
        stage, *_ = descendants(process.pid)
        process.kill()
        wait_for(lambda: command_line(stage) == b"", "the stage has ended")


CRASHES = """
import os, pytest
def test_one(): pass
def test_crash(): os.abort()
@pytest.mark.skip(reason="not here")
def test_skipped(): pass
def test_wrong(): assert 1 == 2
"""
RUNS_TESTS = """
import sys
from pathlib import Path
from benchmarks.gpu_acceptance import gpu_tests
from benchmarks.gpu_acceptance.record import Record
from benchmarks.gpu_acceptance.stage import Settings, Stage

gpu_tests.PATHS, gpu_tests.FLAGS = (sys.argv[1],), ("-p", "no:cacheprovider")
gpu_tests.run(Stage(Record(Path(sys.argv[2]), "tests"), Settings(100)))
"""


@pytest.mark.slow
def test_a_test_that_ends_its_process_does_not_end_the_others(tmp_path):
    tests, path = tmp_path / "test_it.py", tmp_path / "tests.json"
    tests.write_text(CRASHES)
    command = [sys.executable, "-c", RUNS_TESTS, str(tests), str(path)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    found = {
        each["name"].rpartition("::")[2]: each
        for each in json.loads(path.read_text())["measurements"]
    }
    assert list(found) == ["test_one", "test_crash", "test_skipped", "test_wrong", "all tests"]
    assert found["test_one"]["value"]["outcome"] == "passed"
    assert found["test_crash"]["error"] == "its process: died by signal 6"
    assert "not here" in found["test_skipped"]["skipped"]
    assert found["test_wrong"]["error"] == "assert 1 == 2"
    counts = {"passed": 1, "failed": 2, "skipped": 1, "collected": 4}
    assert found["all tests"]["value"] == counts


def test_missing_packages_are_named_with_the_commands_to_install_them(tmp_path):
    out_dir = tmp_path / "out"
    code, out, err = end(start("--out", out_dir, python=("-S",), paths=[ROOT]))
    assert (code, out) == (2, "")
    for package in (*BASE.values(), "pytest", "pytest-timeout", "hypothesis"):
        assert f"  {package}, for " in err
    assert "pip download --dest wheels --only-binary :all: --python-version 3." in err
    assert "--find-links wheels --target packages" in err
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
    assert "'cupy-cuda13x[ctk]'" in advice({"cupy-cuda13x[ctk]": ["cli"]})


def test_without_a_gpu_nothing_starts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.gpu_acceptance.__main__.missing", lambda stages: {})
    monkeypatch.setattr("benchmarks.gpu_acceptance.__main__.no_gpu", lambda device: "no GPU here")
    assert main(["--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "gpu_acceptance: no GPU here\n"
    assert not (tmp_path / "out").exists()


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
