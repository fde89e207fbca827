"""The package and the program: `import hogbatch` and `python -m hogbatch`."""

import subprocess
import sys

import pytest

import hogbatch
from hogbatch.version import version


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


def test_the_package_can_be_executed():
    assert run("-m", "hogbatch", "--version").stdout == f"hogbatch {version()}\n"
