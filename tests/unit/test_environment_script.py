"""scripts/environment installs the extras, and CuPy where there is an NVIDIA driver.

nvidia-smi, python3 and pip are replaced by scripts that record what they are asked.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/usr/bin/env bash
if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
if [ "$2" = pip ]; then echo "${@:3}" >>"$INSTALLED"; fi
"""
SMI = """#!/usr/bin/env bash
cat <<'END'
Thu Nov 19 10:00:00 2026
+-----------------------------------------------------------------------------------------+
{line}
+-----------------------------------------+------------------------+----------------------+
END
exit {code}
"""
OLD_LINE = "| NVIDIA-SMI 5.1   Driver Version: 5.1   CUDA Version: {version} |"
NEW_LINE = "| NVIDIA-SMI 610.57.04   KMD Version: 610.57.04   CUDA UMD Version: {version} |"
FAILED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


class Checkout:
    """A directory with scripts/environment, and a PATH with fake programs."""

    def __init__(self, root):
        self.root, self.programs, self.log = root, root / "bin", root / "installed"
        self.programs.mkdir()
        (root / "scripts").mkdir()
        (root / "pyproject.toml").touch()
        shutil.copy(ROOT / "scripts" / "environment", root / "scripts")
        self.program("python3", PYTHON)

    def program(self, name, text):
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def driver(self, line, code=0):
        self.program("nvidia-smi", SMI.format(line=line, code=code))

    def install(self, *extras, **variables):
        """The commands given to pip by a call of the script; an error if it fails."""
        path = f"{self.programs}:/usr/bin:/bin"
        env = {"PATH": path, "INSTALLED": str(self.log), "HOME": os.environ.get("HOME", "/")}
        env |= variables
        self.log.write_text("")
        subprocess.run([self.root / "scripts" / "environment", *extras], env=env, check=True)
        return self.log.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path):
    """Without a driver until `driver` is called."""
    made = Checkout(tmp_path)
    made.program("nvidia-smi", "#!/bin/sh\nexit 127\n")
    return made


NIXL = "install --quiet --no-compile --no-deps nixl nixl-cu12"


def install(extras):
    """The commands that install `extras`; for tests, NIXL too."""
    ours = f"install --quiet --no-compile --editable .{extras}"
    return [ours, *[NIXL] * ("test" in extras)]


def test_without_a_driver_only_the_extras_are_installed(checkout):
    assert checkout.install("test") == install("[test]")
    assert checkout.install("test") == []
    assert checkout.install() == install("")


@pytest.mark.parametrize("line", [OLD_LINE, NEW_LINE])
@pytest.mark.parametrize(
    ("version", "extra"), [("12.4", "cuda12"), ("13.0", "cuda13"), ("14.1", "cuda13")]
)
def test_a_driver_adds_its_cupy(checkout, line, version, extra):
    checkout.driver(line.format(version=version))
    assert checkout.install("bench") == install(f"[bench,{extra}]")
    assert checkout.install("bench") == []
    assert checkout.install() == install(f"[{extra}]")


def test_a_driver_for_which_there_is_no_cupy_adds_nothing(checkout):
    checkout.driver(OLD_LINE.format(version="11.8"))
    assert checkout.install("test") == install("[test]")


def test_a_driver_that_fails_adds_nothing(checkout):
    checkout.driver(FAILED, code=9)
    assert checkout.install("test") == install("[test]")


def test_a_gpu_that_is_added_later_is_noticed(checkout):
    assert checkout.install("test") == install("[test]")
    checkout.driver(NEW_LINE.format(version="13.3"))
    assert checkout.install("test") == install("[test,cuda13]")


def test_a_new_driver_does_not_add_a_second_cupy(checkout):
    checkout.driver(OLD_LINE.format(version="12.4"))
    checkout.install("test")
    checkout.driver(OLD_LINE.format(version="13.0"))
    assert checkout.install("test") == []
    assert checkout.install("bench") == install("[bench,cuda12]")


def test_a_variable_chooses_the_cupy(checkout):
    checkout.driver(NEW_LINE.format(version="13.3"))
    assert checkout.install("test", HOGBATCH_CUDA="none") == install("[test]")
    assert checkout.install("test", HOGBATCH_CUDA="cuda12") == install("[test,cuda12]")
    assert checkout.install("bench") == install("[bench,cuda12]")
    for refused in ("cuda13", "12"):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            checkout.install("test", HOGBATCH_CUDA=refused)
        assert failed.value.returncode == 2
