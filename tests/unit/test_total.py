"""The last line of scripts/test: the total of several pytest runs."""

import os
import subprocess
import sys

import pytest

from tests.support.total import summarize

PASSING = "def test_good(): pass\n"
MIXED = """
import pytest
def test_good(): pass
def test_bad(): assert False
def test_skipped(): pytest.skip("reason")
@pytest.fixture
def broken(): raise ValueError
def test_error(broken): pass
"""


@pytest.fixture
def run(tmp_path):
    """Runs pytest on one file as a part of the suite; `exit_code` replaces that of pytest."""
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take half of the time

    def call(name, source, exit_code=None):
        (tmp_path / "pytest.ini").touch()
        (tmp_path / f"test_{name}.py").write_text(source)
        xml = tmp_path / f"{name}.xml"
        flags = ("-o", "junit_family=xunit1", "--junit-xml", xml, f"test_{name}.py")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *flags],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
        )
        code = done.returncode if exit_code is None else exit_code
        (tmp_path / f"{name}.code").write_text(str(code))

    return call


def test_passed_tests_are_added_up(run, tmp_path):
    run("first", PASSING)
    run("second", PASSING)
    assert summarize(tmp_path) == ("total: 2 passed, 0 failed, 0 skipped", True)


def test_failures_and_errors_are_named(run, tmp_path):
    run("first", PASSING)
    run("second", MIXED)
    line, passed = summarize(tmp_path)
    assert not passed
    assert line == (
        "total: 2 passed, 2 failed, 1 skipped: "
        "test_second.py::test_bad (second), test_second.py::test_error (second)"
    )


def test_a_part_that_crashes_is_a_failure(run, tmp_path):
    run("first", PASSING)
    run("second", PASSING, exit_code=3)
    (tmp_path / "third.code").write_text("-9")
    line, passed = summarize(tmp_path)
    assert not passed
    assert line.endswith(
        "2 failed, 0 skipped: pytest ended with exit code 3 (second), "
        "pytest ended with exit code -9 (third)"
    )


def test_without_any_test_nothing_has_passed(tmp_path):
    assert summarize(tmp_path) == ("total: 0 passed, 0 failed, 0 skipped", False)
