"""Processes of another user, who owns nothing of a run."""

import os
import subprocess
import sys

import pytest

NOBODY = {"user": 65_534, "group": 65_534, "extra_groups": [], "cwd": "/"}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def start_as_nobody(code, *arguments, **options):
    """Start Python `code` as another user; it can import the standard library only."""
    command = [_interpreter(), "-I", "-S", "-c", code, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, **NOBODY, **options)


def _interpreter():
    """A Python interpreter that every user may run."""
    for path in (sys.executable, "/usr/bin/python3"):
        try:
            subprocess.run([path, "-I", "-S", "-c", ""], check=True, capture_output=True, **NOBODY)
        except (OSError, subprocess.CalledProcessError):
            continue
        return path
    pytest.skip("there is no Python that another user may run")


def as_another_user():
    """The prefix of a command line that runs the command as another user.

    That user may read everything, like an installation by root in a container, and cannot write
    any of our files.
    """
    may = "-all,+dac_read_search"
    rights = [f"--{which}={may}" for which in ("inh-caps", "ambient-caps", "bounding-set")]
    user, group = NOBODY["user"], NOBODY["group"]
    command = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *rights]
    try:
        subprocess.run([*command, sys.executable, "-I", "-S", "-c", ""], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("setpriv cannot start a process of another user here")
    return command
