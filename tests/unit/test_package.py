"""What `import hogbatch` and `python -m hogbatch` give."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import hogbatch


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def test_the_package_knows_its_version():
    assert hogbatch.__version__ == version("hogbatch")
    with pytest.raises(AttributeError, match="no attribute 'versions'"):
        hogbatch.versions  # noqa: B018


def test_the_package_is_imported_without_what_it_may_not_need():
    loaded = ["numpy", "numba", "zmq", "msgspec", "safetensors", "importlib.metadata"]
    told = f"import sys, hogbatch; print([name for name in {loaded} if name in sys.modules])"
    assert run("-c", told).stdout == "[]\n"


def test_the_package_is_a_program():
    assert run("-m", "hogbatch", "--version").stdout == f"hogbatch {version('hogbatch')}\n"
