"""Benchmarks form a package: questions depend on `common` and `peers`, never on each other."""

import runpy
import warnings

import pytest

from tests.support.tracked_files import ROOT, python_files
from tests.test_layers import imports, within

BENCHMARKS = ROOT / "benchmarks"


def module_name(path):
    """The dotted name of a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = python_files("benchmarks")
SOURCES = {module_name(path): path.read_text(encoding="utf-8") for path in FILES}
QUESTIONS = [
    *(each.stem for each in FILES if each.parent == BENCHMARKS and each.stem != "__init__"),
    *(
        each.parent.name
        for each in FILES
        if each.parent.parent == BENCHMARKS and each.name == "__main__.py"
    ),
]


def allowed(module):
    """The modules of this project that `module` may import."""
    part = ".".join(module.split(".")[:2])
    if part == "benchmarks.peers":  # peers run in their frameworks' environments
        return ["hogbatch", part]
    return ["hogbatch", "workers", "benchmarks.common", "benchmarks.peers", part]


def faults(module, source):
    """The imports of `module` that are not allowed."""
    projects = ["hogbatch", "workers", "benchmarks", "tests"]
    return [
        name
        for name in imports(source)
        if (within(name, projects) or name.startswith(".")) and not within(name, allowed(module))
    ]


def test_benchmarks_import_only_what_is_shared_and_their_own():
    found = {module: faults(module, source) for module, source in SOURCES.items()}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("benchmarks.several_servers", "from benchmarks.faults.soak import sample"),
        ("benchmarks.common.job", "from benchmarks import cpu_step"),
        ("benchmarks.faults.soak", "from tests.support.fault_injection import Job"),
        ("benchmarks.peers.pytorch", "from benchmarks.common.search import search"),
        ("benchmarks.extreme.process", "from . import synthetic"),
    ],
)
def test_a_forbidden_import_is_found(module, source):
    assert len(faults(module, source)) == 1


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_every_benchmark_starts_and_prints_its_help(name, monkeypatch, capsys):
    """In this process, because a process for each would spend its time on imports."""
    pytest.importorskip("sklearn")
    monkeypatch.setattr("sys.argv", [name, "--help"])
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # restored: brgemm sets it
    monkeypatch.setenv("COLUMNS", "100")
    with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
        warnings.simplefilter("ignore", RuntimeWarning)  # that another test has imported it
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    # scripts/bench installs packages, which the machines for gpu_acceptance cannot
    program = "python3 -m benchmarks." if name == "gpu_acceptance" else "scripts/bench "
    assert capsys.readouterr().out.startswith(f"usage: {program}{name} ")
