"""Nothing that is read can run code: no pickle and no eval, on no wire and in no file."""

import ast
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hogbatch.data.load import load
from hogbatch.errors import DataError
from tests.support.tracked_files import ROOT, tracked_files

MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
MODULES |= {"copyreg", "yaml", "multiprocessing"}  # the last sends everything by pickle
NAMES = {"eval", "exec", "compile", "__import__"}
METHODS = {"recv_pyobj", "send_pyobj", "recv_serialized", "send_serialized", "read_pickle"}
METHODS |= {"to_pickle", "tofile", "loads_pickle"}
SOURCES = [
    path
    for folder in ("hogbatch", "workers", "scripts")
    for path in sorted(tracked_files())
    if ROOT / folder in path.parents
    and (path.suffix == ".py" or path.read_bytes()[:40].startswith(b"#!"))
]


def dangers(source):
    """What in `source` could run what it reads, one name each."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (a.name for a in names if a.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                yield module
            case ast.Name(name) if name in NAMES:
                yield name
            case ast.Attribute(value, name) if name in METHODS:
                yield name
            case ast.Attribute(ast.Name("builtins"), name) if name in NAMES:
                yield name
            case ast.keyword("allow_pickle", value) if not is_false(value):
                yield "allow_pickle"
            case ast.Call(ast.Attribute(ast.Name("np" | "numpy"), "load"), _, keywords):
                if not any(k.arg == "allow_pickle" and is_false(k.value) for k in keywords):
                    yield "np.load"


def is_false(node):
    return isinstance(node, ast.Constant) and node.value is False


def dangers_of_file(path):
    """The dangers in a Python file or in a shell script."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return list(dangers(source))
    return [name for name in ("pickle", "marshal", "eval ") if name in source]


def test_nothing_that_is_read_can_run_code():
    found = {str(path.relative_to(ROOT)): dangers_of_file(path) for path in SOURCES}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_sources_are_there_to_be_checked():
    names = {str(path.relative_to(ROOT)) for path in SOURCES}
    assert {"hogbatch/wire/codec.py", "workers/cpu.py", "scripts/train"} <= names


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "import a, pickle as p", "from pickle import loads", "import joblib"),
        *("def late():\n    import marshal", "from multiprocessing.connection import Listener"),
        *("eval(text)", "run = exec", "__import__(name)", "builtins.eval(text)"),
        *("socket.recv_pyobj()", "send = socket.send_pyobj", "np.load(file)"),
        *("np.load(file, allow_pickle=True)", "numpy.load(file, None, a)", "f(allow_pickle=x)"),
    ],
)
def test_a_danger_is_found(source):
    assert list(dangers(source)) != []


@pytest.mark.parametrize(
    "source",
    [
        *(
            "import pickling",
            "from hogbatch.data.load import load",
            "model.eval()",
            "re.compile(x)",
        ),
        *("np.load(file, allow_pickle=False)", "json.load(file)", "self.exec = 1"),
    ],
)
def test_what_is_harmless_passes(source):
    assert list(dangers(source)) == []


class Trap:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["X", "y"])
def test_an_npz_that_holds_a_pickle_is_refused_and_not_unpickled(tmp_path, name):
    sprung = tmp_path / "sprung"
    arrays = {"X": np.ones((4, 2)), "y": np.ones(4)}
    array = np.full(arrays[name].shape, Trap(sprung), dtype=object)
    np.savez(tmp_path / "trap.npz", **(arrays | {name: array}))
    with pytest.raises(DataError):
        load(str(tmp_path / "trap.npz"))
    assert not sprung.exists()


def test_the_trap_works(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.array([Trap(tmp_path / "sprung")]), allow_pickle=True)
    buffer.seek(0)
    np.load(buffer, allow_pickle=True)
    assert (tmp_path / "sprung").exists()


def test_a_pickle_under_the_name_of_an_array_is_refused(tmp_path):
    import pickle

    sprung = tmp_path / "sprung"
    with zipfile.ZipFile(tmp_path / "trap.npz", "w") as archive:
        for name in ("X.npy", "y.npy"):
            archive.writestr(name, pickle.dumps(Trap(sprung)))
    with pytest.raises(DataError):
        load(str(tmp_path / "trap.npz"))
    assert not sprung.exists()
