"""Processes under restrictions: few open files, small files, no /proc."""

import shlex
import subprocess
import sys

import pytest

from tests.support.fault_injection import WITHIN_S
from tests.support.other_user import as_root

TRAIN = ("hogbatch.cli.main", "train", "a9a", "--hidden", "8", "--epochs", "1")
WORKER = ("hogbatch.workers.cpu",)


def complaint(tmp_path, before, module, *arguments):
    """What a process says, in one line, that cannot run after the shell command `before`."""
    place = ("--run-dir", tmp_path / "run") if arguments else (tmp_path / "run",)
    python = [sys.executable, "-m", module, *map(str, (*arguments, *place))]
    ran = subprocess.run(
        ["bash", "-c", f'{before}; exec "$@"', "bash", *python],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert ran.returncode == 2, ran.stderr
    (line,) = ran.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", [TRAIN, WORKER], ids=["train", "worker"])
def test_few_open_files_are_one_sentence(tmp_path, command):
    line = complaint(tmp_path, "ulimit -n 16", *command)
    assert "expected at least 64 open files to be allowed; got a limit of 16" in line
    assert not (tmp_path / "run").exists()


def test_a_small_address_space_is_one_sentence(tmp_path):
    line = complaint(tmp_path, "ulimit -v 500000", *TRAIN)  # LLVM would end the process
    assert "an address space of at least 1.07 GB; got a limit of 512 MB: raise it, as with" in line
    assert not (tmp_path / "run").exists()


def test_files_that_may_not_be_large_are_one_sentence(tmp_path):
    # Otherwise Python might write incomplete byte code of packages.
    before = "export PYTHONDONTWRITEBYTECODE=1; ulimit -f 200"
    line = complaint(tmp_path, before, *TRAIN)
    assert "expected a file size limit of at least 6.0" in line and "for the data segment" in line
    assert "got a limit of 204800 bytes: raise it, as with 'ulimit -f unlimited'" in line


@as_root
def test_no_proc_is_one_sentence(tmp_path):
    hide = ["unshare", "-m", "bash", "-c", 'mount -t tmpfs none /proc && exec "$@"', "bash"]
    if subprocess.run([*hide, "true"], capture_output=True).returncode:
        pytest.skip("this root may not mount")
    line = complaint(tmp_path, f'set -- {shlex.join(hide)} "$@"', *TRAIN)
    assert "expected /proc to be mounted" in line
    assert not (tmp_path / "run").exists()
