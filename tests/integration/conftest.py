"""A run in its own folder, a finished run, and commands in this process."""

import shutil
import subprocess

import pytest

from hogbatch.cli import main as command_line
from tests.support.fault_injection import Job


@pytest.fixture
def job(tmp_path):
    """A run in a folder of its own; all of its processes are killed after the test."""
    made = Job(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """The run directory of one epoch on a9a with `job`'s network; tests work on copies of it."""
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    flags = ("--hidden", "32", "--workers", "cpu:1", "--epochs", "1", "--run-dir", str(run_dir))
    assert command_line.main(["train", "a9a", *flags]) == 0
    return run_dir


@pytest.fixture
def finished_job(job, finished_run):
    """A job whose run directory holds a finished run."""
    shutil.copytree(finished_run, job.run_dir)
    return job


@pytest.fixture
def main(capfd, monkeypatch):
    """Run one hogbatch command to its end as `cli` does, but in this process.

    That saves most of the time of a command that is refused before it starts a process.
    """

    def run(*arguments, cwd=None):
        arguments = [str(argument) for argument in arguments]
        capfd.readouterr()
        with monkeypatch.context() as patch:
            if cwd is not None:
                patch.chdir(cwd)
            code = command_line.main(arguments)
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, err)

    return run
