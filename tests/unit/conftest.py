"""The stand-in for CuPy, for the tests of the stand-in itself."""

import importlib
import shutil
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "cuda_on_host"
SHADOWED = ("cupy", "cuda")


@pytest.fixture(scope="module")
def cupy():
    """The stand-in, in the place of a real CuPy for as long as these tests run."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    if str(FOLDER) in sys.path:  # all of this session runs on it
        yield importlib.import_module("cupy")
        return
    real = {name: sys.modules.pop(name) for name in list(sys.modules) if is_shadowed(name)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(FOLDER), *sys.path])
        yield importlib.import_module("cupy")
    for name in filter(is_shadowed, list(sys.modules)):
        del sys.modules[name]
    sys.modules.update(real)


def is_shadowed(module):
    return module.split(".")[0] in SHADOWED


@pytest.fixture
def stream(cupy):
    with cupy.cuda.Stream(non_blocking=True) as stream:
        yield stream
