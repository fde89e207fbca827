"""The version of the source tree that is imported, installed or not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hogbatch.version import PACKAGE, version

ROOT = Path(__file__).parents[2]
ASK = "from hogbatch.version import version; print(version())"


def bare_python(*arguments, path):
    """Run Python without any installed package, importing from `path` only."""
    command = [sys.executable, "-S", *arguments]
    env = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(command, capture_output=True, text=True, cwd=path, env=env)


@pytest.fixture
def copied(tmp_path):
    """A directory with a copy of the package."""
    ignored = shutil.ignore_patterns("__pycache__", "samples")
    shutil.copytree(ROOT / "hogbatch", tmp_path / "tree" / "hogbatch", ignore=ignored)
    return tmp_path / "tree"


def declare(tree):
    (tree / "pyproject.toml").write_text('[project]\nname = "hogbatch"\nversion = "7.8.9"\n')


def test_a_checkout_has_the_version_of_its_pyproject():
    declared = (
        (ROOT / "pyproject.toml")
        .read_text(encoding="utf-8")
        .split('\nversion = "')[1]
        .split('"')[0]
    )
    assert (PACKAGE, version()) == (ROOT / "hogbatch", declared)


def test_a_checkout_needs_no_installation(copied):
    declare(copied)
    done = bare_python("-c", ASK, path=copied)
    assert (done.stdout, done.stderr) == ("7.8.9\n", "")
    asked = "import hogbatch; print(hogbatch.__version__)"
    assert bare_python("-c", asked, path=copied).stdout == "7.8.9\n"


def install(tree, version):
    """The metadata that pip writes beside the package."""
    found = tree / f"hogbatch-{version}.dist-info"
    found.mkdir()
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hogbatch\nVersion: {version}\n")


def test_an_installed_package_has_its_own_version(copied):
    install(copied, "3.2.1")
    assert bare_python("-c", ASK, path=copied).stdout == "3.2.1\n"


def test_another_installation_does_not_count_in_a_checkout(copied, tmp_path):
    install(tmp_path, "3.2.1")
    declare(copied)
    program = f"import sys; sys.path.append({str(tmp_path)!r}); {ASK}"
    assert bare_python("-c", program, path=copied).stdout == "7.8.9\n"
