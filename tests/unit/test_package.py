"""The package and the program: `import hogbatch` and `python -m hogbatch`."""

import subprocess
import sys
import tomllib

import pytest

import hogbatch
from hogbatch.version import version
from tests.support.tracked_files import ROOT, tracked_files

PACKAGE = ROOT / "hogbatch"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def test_the_package_has_a_version():
    assert hogbatch.__version__ == version()
    with pytest.raises(AttributeError, match="no attribute 'versions'"):
        hogbatch.versions  # noqa: B018


def test_the_import_does_not_load_other_packages():
    loaded = ["numpy", "numba", "zmq", "msgspec", "safetensors", "importlib.metadata"]
    program = f"import sys, hogbatch; print([name for name in {loaded} if name in sys.modules])"
    assert run("-c", program).stdout == "[]\n"


def test_nothing_but_the_package_is_installed():
    """The folder `workers` of the repository is installed as `hogbatch.workers`."""
    assert SETUPTOOLS["packages"]["find"]["include"] == ["hogbatch*"]
    assert (ROOT / "hogbatch" / "workers").resolve() == ROOT / "workers"


def test_every_file_of_the_package_is_installed():
    installed = {
        file for each in SETUPTOOLS["package-data"]["hogbatch"] for file in PACKAGE.glob(each)
    }
    files = {file for file in tracked_files() if PACKAGE in file.parents and file.suffix != ".py"}
    assert files <= installed


def test_the_package_can_be_executed():
    assert run("-m", "hogbatch", "--version").stdout == f"hogbatch {version()}\n"
