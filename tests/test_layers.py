"""Imports run downward only, and each outside package has its place. The lists are the design."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tracked_files import ROOT, python_files

LAYERS = [  # low to high: a package may import itself and those before it
    "errors",
    "version",
    "machine",
    "jit",
    "config",
    "policy",
    "wire",
    "data",
    "kernels",
    "store",
    "model",
    "export",
    "workers",
    "events",
    "coordinator",
    "views",
    "run",
    "cluster",
    "api",
    "estimators",
    "simulate",
    "cli",
    "__main__",
]
# Of the packages above `workers`, only these import more of it than `workers.compute`.
MAY_IMPORT_WORKERS = ["hogbatch.run.this_process", "hogbatch.simulate"]
ONLY_DECIDE = {  # packages, and their modules without a clock, files, processes and threads
    "cli.doctor": "checks",
    "cluster": "decisions",
    "config": "effect layers losses lsh optimizers",
    "coordinator": "",  # all of them, with the exceptions below
    "data": "columns",
    "events": "combine event state worker_figures",
    "kernels": "contract executor layers",
    "machine": "topology",
    "model": "footprint",
    "policy": "",
    "run": "defaults planning launch.restarts",
    "simulate": "",
    "store": "layout merge",
    "views.live": "activity frame",
    "views.report": "figures markup predictions reported tables",
    "views.trackers": "base names",
    "workers": "compute",
}
PURE = [
    f"hogbatch.{package}.{module}".removesuffix(".")
    for package, modules in ONLY_DECIDE.items()
    for module in modules.split() or [""]
]
IMPURE_EXCEPTIONS = [
    "hogbatch.coordinator.background",
    "hogbatch.coordinator.interrupts",
    "hogbatch.coordinator.loop",
    "hogbatch.simulate.profile",
]
IMPURE = ["time", "os", "threading", "zmq", "socket", "subprocess"]
ONLY_IN = {  # outside package: the modules that may import it
    "zmq": ["hogbatch.wire.sockets", "hogbatch.wire.curve"],
    "cupy": ["hogbatch.kernels.gpu", "hogbatch.workers.gpu"],
    "cupyx": ["hogbatch.kernels.gpu", "hogbatch.workers.gpu"],
    "pickle": [],
    "PIL": ["hogbatch.data.pictures"],
    "pyarrow": ["hogbatch.data.table.arrow", "hogbatch.cluster.ray"],
    "matplotlib": ["hogbatch.views.report.chart"],
    "onnx": ["hogbatch.export.onnx_file", "hogbatch.estimators.converters"],
    "skl2onnx": ["hogbatch.estimators.converters"],
    "mlflow": ["hogbatch.views.trackers.mlflow_run"],
    "tensorboard": ["hogbatch.views.trackers.tensorboard_events"],
    "wandb": ["hogbatch.views.trackers.wandb_run"],
    "rich": ["hogbatch.views.live"],
    "ray": ["hogbatch.cluster.ray"],
    "nixl": ["hogbatch.cluster.planes.nixl"],
}


def module_name(path: Path) -> str:
    """The dotted name of a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return f"hogbatch.{name}" if parts[0] == "workers" else name


SOURCES = {
    module_name(path): path.read_text(encoding="utf-8")
    for path in python_files("hogbatch", "workers")
}


def imports(source: str) -> Iterator[str]:
    """Every module that `source` imports, wherever the statement stands.

    `from a import b` gives a.b, which is within a whether or not b is a module.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # No module has a relative import: `.x` is within nothing, and so is refused.
            origin = "." * node.level + (node.module or "")
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def within(module: str, packages: list[str]) -> bool:
    """Whether `module` is one of `packages` or lies in one."""
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def may_import(module: str, name: str) -> bool:
    """Whether `module` may import `name`, which is of this project."""
    inner = module.split(".")[1:2]
    if not inner:  # the package itself offers the public interface
        return within(name, ["hogbatch"])
    if inner[0] not in LAYERS:
        raise ValueError(f"{module} has no place in LAYERS")
    place = LAYERS.index(inner[0])
    if within(name, ["hogbatch.workers"]) and place > LAYERS.index("workers"):
        return within(module, MAY_IMPORT_WORKERS) or within(name, ["hogbatch.workers.compute"])
    return within(name, [f"hogbatch.{lower}" for lower in LAYERS[: place + 1]])


def faults(module: str, source: str) -> list[str]:
    """What the imports of `module` break, one sentence each."""
    found = []
    for name in imports(source):
        ours = within(name, ["hogbatch", "workers"]) or name.startswith(".")
        if ours and not may_import(module, name):
            found.append(f"{module} may not import {name}: it does not lie below")
        pure = within(module, PURE) and not within(module, IMPURE_EXCEPTIONS)
        if pure and within(name, IMPURE):
            found.append(f"{module} may not import {name}: it only decides")
        for package, places in ONLY_IN.items():
            if within(name, [package]) and not within(module, places):
                found.append(
                    f"{module} may not import {name}: it belongs in {places or 'no module'}"
                )
    return found


def test_imports_keep_to_the_design():
    assert [fault for module in SOURCES for fault in faults(module, SOURCES[module])] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hogbatch.wire.codec", "from hogbatch.store.layout import Field"),
        ("hogbatch.wire.codec", "from hogbatch import store"),
        ("hogbatch.wire.codec", "import hogbatch.cli.main as cli"),
        ("hogbatch.wire.codec", "import hogbatch"),
        ("hogbatch.wire.codec", "from . import messages"),
        ("hogbatch.wire.codec", "from ..store import layout"),
        ("hogbatch.wire.codec", "def late():\n    import hogbatch.store"),
        ("hogbatch.cli.main", "import hogbatch.workers.cpu"),
        ("hogbatch", "from workers import cpu"),
        ("hogbatch.run.this_server", "from hogbatch.workers.cpu import CpuEngine"),
        ("hogbatch.workers.cpu", "from hogbatch.coordinator.state import Coordinator"),
        ("hogbatch.workers.cpu", "from hogbatch.events import sinks"),
        ("hogbatch.workers.cpu", "import hogbatch"),
        ("hogbatch.coordinator.state", "import time"),
        ("hogbatch.coordinator.adapters", "import socket"),
        ("hogbatch.coordinator.ledger", "from os import path"),
        ("hogbatch.policy.adaptive", "import os.path"),
        ("hogbatch.policy.learning_rate", "if True:\n    from threading import Lock"),
        ("hogbatch.coordinator.loop", "import zmq"),
        ("hogbatch.kernels.reference", "import cupy as cp"),
        ("hogbatch.workers.cpu", "from cupy.cuda import Stream"),
        ("hogbatch.store.segment", "import pickle"),
    ],
)
def test_a_forbidden_import_is_found(module, source):
    assert len(faults(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hogbatch.store.layout", "from hogbatch.data.batch import Inputs"),
        ("hogbatch.store.layout", "from hogbatch.store import segment"),
        ("hogbatch", "from hogbatch.api import train"),
        (
            "hogbatch.workers.cpu",
            "from hogbatch import data\nimport hogbatch.workers, time",
        ),
        ("hogbatch.wire.sockets", "import zmq.utils"),
        ("hogbatch.kernels.gpu.dense", "import cupy, cupyx.scipy"),
        ("hogbatch.coordinator.loop", "import time, os, timeit"),
        ("hogbatch.policy.base", "import operator, timeit"),
        ("hogbatch.run.this_process", "from hogbatch.workers.cpu import CpuEngine"),
    ],
)
def test_a_permitted_import_passes(module, source):
    assert faults(module, source) == []


def test_a_module_without_a_layer_is_refused():
    with pytest.raises(ValueError, match="helpers"):
        faults("hogbatch.helpers", "from hogbatch.errors import HogbatchError")


def test_every_package_has_a_layer():
    assert {module.split(".")[1] for module in SOURCES if "." in module} == set(LAYERS)


def test_every_pure_module_and_every_exception_exists():
    assert [name for name in [*PURE, *IMPURE_EXCEPTIONS] if name not in SOURCES] == []
