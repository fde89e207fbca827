"""Imports run downward only, and each outside package has its place. The lists are the design."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tracked_files import ROOT, python_files

LAYERS = [  # low to high: a module may import its own layer and those before it
    *("errors", "version", "machine", "jit", "config.values", "config.lsh"),
    *("model.optimizers", "model.losses", "model.layers"),
    *("config.flags", "config.train", "config.arguments", "config.sources"),
    *("wire", "data", "store", "kernels", "model.metrics", "model.network", "model.footprint"),
    "compute",
    "cluster",
    *("policy", "telemetry", "coordinator", "checkpoint", "model.file", "model.prediction"),
    *("servers", "status", "trackers"),
    "live",
    *("launch", "run", "estimators"),
    *("distributed", "call"),
    *("simulate", "rehearse", "doctor", "report"),
    *("commands", "cli", "__main__"),
]
WORKERS_MAY_IMPORT = [  # besides `workers` itself
    *("hogbatch.errors", "hogbatch.version", "hogbatch.machine", "hogbatch.jit"),
    "hogbatch.config",
    *("hogbatch.wire", "hogbatch.data", "hogbatch.store", "hogbatch.kernels"),
    *("hogbatch.config.losses", "hogbatch.config.optimizers", "hogbatch.model.network"),
    "hogbatch.config.layers",
    *("hogbatch.model.footprint", "hogbatch.workers.compute", "hogbatch.events.records"),
]
MAY_IMPORT_WORKERS = ["hogbatch.run.this_process"]  # it works on a thread of its own process
PURE = [  # packages and modules that only decide: no clock, no disk, no processes, no threads
    *("hogbatch.coordinator", "hogbatch.policy", "hogbatch.simulate", "hogbatch.workers.compute"),
    "hogbatch.simulate.rehearsal",
    *("hogbatch.config.lsh", "hogbatch.data.columns", "hogbatch.data.header"),
    *("hogbatch.kernels.contract", "hogbatch.kernels.executor", "hogbatch.kernels.layers"),
    *("hogbatch.run.launch.restarts", "hogbatch.config.layers", "hogbatch.config.losses"),
    *("hogbatch.machine.topology", "hogbatch.model.footprint", "hogbatch.config.optimizers"),
    *("hogbatch.run.defaults", "hogbatch.run.planning"),
    *("hogbatch.events.state", "hogbatch.events.worker_figures"),
    *(
        "hogbatch.views.live.capabilities",
        "hogbatch.views.live.curve",
        "hogbatch.views.live.layout",
    ),
    *("hogbatch.views.live.frame", "hogbatch.views.live.activity", "hogbatch.views.live.budget"),
    *("hogbatch.store.layout", "hogbatch.store.merge"),
    *("hogbatch.simulate.hardware.description", "hogbatch.simulate.hardware.estimates"),
    *("hogbatch.simulate.hardware.workload", "hogbatch.simulate.hardware.cpu_cost"),
    *(
        "hogbatch.simulate.hardware.gpu_cost",
        "hogbatch.simulate.hardware.host_cost",
        "hogbatch.simulate.hardware.toml_text",
    ),
    "hogbatch.simulate.profile.fit",
    "hogbatch.cluster.decisions",
    *("hogbatch.cli.doctor.checks", "hogbatch.cli.doctor.text"),
    *(
        "hogbatch.views.report.figure",
        "hogbatch.views.report.run_figures",
        "hogbatch.views.report.comparison",
    ),
    *(
        "hogbatch.views.report.tables",
        "hogbatch.views.report.quality",
        "hogbatch.views.report.reported",
    ),
    *("hogbatch.views.report.ticks", "hogbatch.views.report.markup", "hogbatch.views.report.plots"),
    "hogbatch.views.report.bars",
    *("hogbatch.views.trackers.base", "hogbatch.views.trackers.names"),
    "hogbatch.workers.speed_check",
]
IMPURE_EXCEPTIONS = [
    *("hogbatch.coordinator.loop", "hogbatch.coordinator.background"),
    *("hogbatch.coordinator.interrupts", "hogbatch.simulate.rehearsal.command"),
]
IMPURE = ["time", "os", "threading", "zmq", "socket", "subprocess"]
ONLY_IN = {  # outside package: the modules that may import it
    "zmq": ["hogbatch.wire.sockets", "hogbatch.wire.curve"],
    "cupy": ["hogbatch.kernels.gpu", "hogbatch.workers.gpu"],
    "cupyx": ["hogbatch.kernels.gpu", "hogbatch.workers.gpu"],
    "pickle": [],
    "pyarrow": ["hogbatch.data.table.arrow", "hogbatch.cluster.ray"],
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
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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


def allowed(module: str) -> list[str]:
    """What `module` may import of this project."""
    package, _, inner = module.partition(".")
    if package == "workers":
        return ["workers", *WORKERS_MAY_IMPORT]
    if not inner:  # the package itself offers whatever it holds
        return ["hogbatch"]
    found = [place for place, layer in enumerate(LAYERS) if within(inner, [layer])]
    if not found:
        raise ValueError(f"{module} has no place in LAYERS")
    lower = [f"hogbatch.{low}" for low in LAYERS[: found[0] + 1]]
    return [*lower, "workers"] if module in MAY_IMPORT_WORKERS else lower


def faults(module: str, source: str) -> list[str]:
    """What the imports of `module` break, one sentence each."""
    found = []
    for name in imports(source):
        ours = within(name, ["hogbatch", "workers"]) or name.startswith(".")
        if ours and not within(name, allowed(module)):
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
            "from hogbatch.events import records\nimport hogbatch.workers.session, time",
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


def test_every_module_has_a_layer():
    packages = {layer.split(".")[0] for layer in LAYERS}
    inner = {module.partition(".")[2] for module in SOURCES if module.startswith("hogbatch.")}
    assert [name for name in inner - packages if not within(name, LAYERS)] == []


def test_every_pure_module_and_every_exception_exists():
    assert [name for name in [*PURE, *IMPURE_EXCEPTIONS] if name not in SOURCES] == []
