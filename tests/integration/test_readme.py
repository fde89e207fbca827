"""The commands of the README run as they are written, in a fresh copy of the repository."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sysconfig
import venv
from functools import partial
from pathlib import Path

import pytest

from tests.support.fault_injection import WITHIN_S, wait_for
from tests.support.tracked_files import ROOT, tracked_files

pytestmark = pytest.mark.slow
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# `scripts/test` is called by this suite, so it runs those tests here that depend on what is in the
# checkout, and one file of each other part of the suite.
FEW_TESTS = [
    f"--ignore-glob=tests/{pattern}"
    for pattern in (
        *("unit/[!_k]*", "property/*", "simulation/*", "chaos/test_chaos.py", "gpu/test_*[!t].py"),
        *("unit/kernels/test_*", "unit/kernels/gpu/*", "unit/kernels/cpu/lsh/*"),
        *("unit/kernels/cpu/test_[!s]*", "unit/kernels/cpu/test_s[!i]*", "integration/test_[!o]*"),
    )
]


def commands(heading):
    """The command lines of the first shell block below a heading of the README, in order."""
    section = (ROOT / "README.md").read_text().partition(f"\n## {heading}\n")[2]
    return [
        shlex.split(line, comments=True) for line in SHELL_BLOCK.search(section)[1].splitlines()
    ]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The tracked files in a path with a blank, with an environment that shares our packages."""
    folder = tmp_path_factory.mktemp("a clone") / "hogbatch"
    for path in tracked_files():
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    share_packages(folder)
    return folder


def share_packages(folder):
    """Create `.venv` as scripts/environment does, but without an installation."""
    venv.create(folder / ".venv")
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / ".venv")}))
    (packages / "shared.pth").write_text(f"{folder}\n{sysconfig.get_path('purelib')}\n")
    program = folder / ".venv" / "bin" / "hogbatch"
    program.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m hogbatch.cli.main "$@"\n')
    program.chmod(0o755)
    for extras in ("base", "test"):
        (folder / ".venv" / f"installed-{extras}").touch()


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Without a GPU and with caches of its own, as on a newcomer's machine."""
    cache = str(tmp_path_factory.mktemp("cache"))
    few = " ".join(FEW_TESTS)
    changed = {"HOGBATCH_CACHE": cache, "HOGBATCH_CUDA": "none", "PYTEST_ADDOPTS": few}
    return {**os.environ, **changed}


def test_the_quick_start_works_in_its_order(checkout, environment):
    quick_start = commands("Quick start")
    assert quick_start == [["scripts/train", "a9a"], ["scripts/test"]]
    for command in quick_start:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (run_dir,) = (checkout / "runs").iterdir()
    assert (run_dir / "model.safetensors").exists() and (run_dir / "summary.json").exists()
    *_, total = done.stdout.splitlines()
    assert re.fullmatch(r"total: \d+ passed, 0 failed, \d+ skipped", total)


def test_workers_are_started_as_described(checkout, environment):
    coordinator, worker, worker_of_a_gpu = commands("Workers")
    assert worker_of_a_gpu[:2] == ["scripts/worker", "gpu"]  # cannot run without a GPU
    run_dir = checkout / coordinator[coordinator.index("--run-dir") + 1]
    started = []
    try:
        for command, file, content in (
            (coordinator, "coordinator.json", "}"),
            (worker, "events.jsonl", '"evaluation"'),
        ):
            started.append(subprocess.Popen(command, cwd=checkout, env=environment))
            wait_for(partial(contains, run_dir / file, content), f"{file} contains {content}")
        started[0].send_signal(signal.SIGINT)
        assert [process.wait(WITHIN_S) for process in started] == [130, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()


def contains(path, content):
    """Whether a file exists and contains some text."""
    return path.exists() and content in path.read_text()
