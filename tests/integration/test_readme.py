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
    (folder / "hogbatch" / "workers").symlink_to("../workers")
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    share_packages(folder)
    return folder


def share_packages(folder):
    """Create `.venv` as scripts/environment does, but without an installation.

    Its `hogbatch` is that of this checkout, whose kernels are compiled.
    """
    venv.create(folder / ".venv")
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / ".venv")}))
    (packages / "shared.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    program = folder / ".venv" / "bin" / "hogbatch"
    program.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -Pm hogbatch.cli.main "$@"\n')
    program.chmod(0o755)
    for extras in ("base", "test"):
        (folder / ".venv" / f"installed-{extras}").touch()


@pytest.fixture(scope="module")
def environment():
    """Without a GPU, as on a newcomer's machine."""
    return {**os.environ, "HOGBATCH_CUDA": "none"}


def test_the_quick_start_is_what_ci_runs(checkout, environment):
    """`.ci/run` trains; `scripts/test` runs this test, so it is called with few tests."""
    train, test = commands("Quick start")
    assert (train, test) == (["scripts/train", "a9a"], ["scripts/test"])
    ci = (ROOT / ".ci" / "run").read_text()
    assert "scripts/train a9a\n" in ci and "scripts/test " in ci
    few = ["tests/test_layers.py", "tests/unit/test_version.py", "--quiet"]
    done = subprocess.run(
        [*test, *few], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


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
