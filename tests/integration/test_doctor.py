"""The command `hogbatch doctor`, as a user calls it."""

import json
import os
import subprocess
import sys

import pytest

from hogbatch.cli.doctor.command import CHECKS

BLOCKED = """
import sys

for name in sys.argv[1].split(","):
    sys.modules[name] = None  # imports of it fail
from hogbatch.cli.main import main

sys.exit(main(["doctor", "--json"]))
"""


def doctor(*arguments, **environment):
    command = [sys.executable, "-m", "hogbatch", "doctor", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_the_report_has_a_line_for_each_check(tmp_path):
    ran = doctor(HOGBATCH_CACHE=str(tmp_path / "cache"), HOGBATCH_VECTOR="12")
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    starts = ("  ok    ", "  warn  ", "  ?     ")
    names = [line[8:23].rstrip() for line in lines if line.startswith(starts)]
    assert names == [name for group in CHECKS.values() for name in group]
    assert any(line.startswith("  warn  processor") for line in lines)  # and the exit code is 0
    assert list(tmp_path.iterdir()) == []  # nothing was compiled


def test_the_report_as_json_has_no_private_names(tmp_path):
    home = tmp_path / "home" / "some-user"
    home.mkdir(parents=True)
    private = {"HOME": str(home), "HOGBATCH_CACHE": str(home / "cache"), "TOKEN": "secret-1234"}
    ran = doctor("--json", **private)
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert [each["name"] for each in found["checks"]] == [n for g in CHECKS.values() for n in g]
    assert {each["status"] for each in found["checks"]} <= {"ok", "warn", "unknown"}
    assert found["versions"]["numba"]
    (kernels,) = [each for each in found["checks"] if each["name"] == "kernels"]
    assert kernels["value"].startswith("~/cache/")
    assert "some-user" not in ran.stdout and "secret-1234" not in ran.stdout


@pytest.mark.parametrize("argument", ["--jsn", "everything", "--json=yes"])
def test_a_wrong_argument_is_refused(argument):
    ran = doctor(argument)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1 and "see hogbatch doctor --help" in ran.stderr


@pytest.mark.parametrize("packages", ["numpy", "numba,msgspec,llvmlite,zmq,safetensors,numpy"])
def test_broken_packages_are_reported(packages):
    command = [sys.executable, "-c", BLOCKED, packages]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    (found,) = [each for each in json.loads(ran.stdout)["checks"] if each["name"] == "packages"]
    assert found["status"] == "warn" and "hogbatch cannot train" in found["advice"]


def test_a_cache_that_cannot_be_used_is_reported(tmp_path):
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / "cache")
    ran = doctor("--json", HOGBATCH_CACHE=place, TMPDIR=str(tmp_path))
    assert ran.returncode == 0
    (found,) = [each for each in json.loads(ran.stdout)["checks"] if each["name"] == "kernels"]
    assert found["status"] == "warn" and "set HOGBATCH_CACHE" in found["advice"]
