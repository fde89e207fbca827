"""Runs of `hogbatch train` in a separate process."""

import subprocess

from benchmarks.common import hogbatch_run


def test_a_run_that_hangs_is_killed_and_an_error(monkeypatch):
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **given: run(["sleep", "1000"], **given))
    done = hogbatch_run.train(["a9a"], limit_s=0.1)
    assert done.error == "exit code -9: killed after 0.1 s"
    assert done.summary == {}
