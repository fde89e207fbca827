"""Starts the processes of a run, watches them, and runs single commands, for integration tests."""

import os
import subprocess
import sys

from benchmarks.common.job import WITHIN_S, Job, wait_for

__all__ = ["WITHIN_S", "Job", "cli", "wait_for"]


def cli(*arguments, cwd=None, env=None):
    """Run one hogbatch command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "hogbatch.cli.main", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
