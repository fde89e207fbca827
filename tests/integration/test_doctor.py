"""The command `hogbatch doctor`, as a user calls it."""

import json
import subprocess
import sys

import pytest

from hogbatch.cli.doctor.command import CHECKS
from tests.support.fault_injection import cli

NAMES = list(CHECKS)
BLOCKED = """
import sys

for name in sys.argv[1].split(","):
    sys.modules[name] = None  # imports of it fail
from hogbatch.cli.main import main

sys.exit(main(["doctor", "--json"]))
"""


def checks(done):
    """What was found, by the name of the check."""
    assert (done.returncode, done.stderr) == (0, "")
    return {each["name"]: each for each in json.loads(done.stdout)["checks"]}


def test_the_report_has_a_line_for_each_check(tmp_path):
    done = cli("doctor", env={"HOGBATCH_CACHE": str(tmp_path / "cache"), "HOGBATCH_VECTOR": "12"})
    assert (done.returncode, done.stderr) == (0, "")
    starts = ("ok    ", "warn  ", "?     ")
    lines = [line for line in done.stdout.splitlines() if line.startswith(starts)]
    assert [line[6:16].rstrip() for line in lines] == NAMES
    assert any(line.startswith("warn  processor") for line in lines)  # and the exit code is 0
    assert not any(file.is_file() for file in tmp_path.rglob("*"))  # nothing was compiled


def test_the_report_as_json_has_no_home_directory(tmp_path):
    home = tmp_path / "home" / "some-user"
    home.mkdir(parents=True)
    private = {"HOME": str(home), "HOGBATCH_CACHE": str(home / "cache"), "TOKEN": "secret-1234"}
    done = cli("doctor", "--json", env=private)
    found = checks(done)
    assert list(found) == NAMES
    assert {each["status"] for each in found.values()} <= {"ok", "warn", "unknown"}
    assert json.loads(done.stdout)["versions"]["numba"]
    assert found["kernels"]["value"].startswith("~/cache/")
    assert "some-user" not in done.stdout and "secret-1234" not in done.stdout


@pytest.mark.parametrize("argument", ["--jsn", "everything", "--json=yes"])
def test_a_wrong_argument_is_refused(main, argument):
    done = main("doctor", argument)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "see hogbatch doctor --help" in done.stderr


@pytest.mark.parametrize("packages", ["numpy", "numba,msgspec,llvmlite,zmq,safetensors,numpy"])
def test_broken_packages_are_reported(packages):
    command = [sys.executable, "-c", BLOCKED, packages]
    found = checks(subprocess.run(command, capture_output=True, text=True))["packages"]
    assert found["status"] == "warn" and "hogbatch cannot train" in found["advice"]


def test_a_cache_that_cannot_be_used_is_reported(tmp_path):
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / "cache")
    done = cli("doctor", "--json", env={"HOGBATCH_CACHE": place, "TMPDIR": str(tmp_path)})
    found = checks(done)["kernels"]
    assert found["status"] == "warn" and "set HOGBATCH_CACHE" in found["advice"]
