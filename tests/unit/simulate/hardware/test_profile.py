"""`hogbatch profile` measures this machine, and finds the figures that probes were made with."""

import os
import re
from functools import partial

import pytest
from msgspec.structs import replace

from hogbatch.cli.main import main
from hogbatch.machine.topology import Topology
from hogbatch.simulate.hardware.description import read_server
from hogbatch.simulate.profile import machine, networks
from hogbatch.simulate.profile.cpu import Measured
from hogbatch.simulate.profile.fit import NOT_MEASURED, Probe, fit
from hogbatch.simulate.profile.machine import cores_per_cache
from hogbatch.simulate.profile.networks import DENSE, HASHED, SPARSE


@pytest.fixture
def quick(monkeypatch):
    """One small network of each kind."""
    for name, kind in (("DENSE", DENSE), ("SPARSE", SPARSE), ("HASHED", HASHED)):
        monkeypatch.setattr(machine, name, kind[:1])
    monkeypatch.setattr(machine, "ON_GPU", DENSE[:1])
    monkeypatch.setattr(machine, "BATCHES", (4, 64))
    monkeypatch.setattr(machine, "SECONDS", 0.001)
    monkeypatch.setattr(networks, "DENSE_VALUES", 1 << 18)
    monkeypatch.setattr(networks, "SPARSE_VALUES", 1 << 16)


@pytest.mark.usefixtures("quick")
def test_a_profile_writes_a_description(tmp_path, capsys):
    file = tmp_path / "mine.toml"
    assert main(["profile", "--name", "mine", "--output", str(file)]) == 0
    server = read_server(str(file))
    assert server.name == "mine"
    assert "host" in [gpu.ordinal for gpu in server.gpus]
    memory = server.cpu.memory
    assert memory.far_speed == pytest.approx(memory.near_speed / 2, rel=1e-3)
    assert list(tmp_path.iterdir()) == [file]
    assert re.search("CPU: [0-9]+ probes, median error", capsys.readouterr().err)


@pytest.fixture
def measured(monkeypatch, server):
    """The names of what `hogbatch profile` measures, with fixed results."""
    found, probes = [], [Probe("one", 1.0, lambda _: 1.0)]
    for name, result in (("describe_cpu", server.cpu), ("describe_gpu", server.gpus[0])):
        given = name, result
        monkeypatch.setattr(
            machine, name, lambda *_, given=given: (found.append(given[0]), (given[1], probes))[1]
        )
    return found


def test_an_output_is_checked_before_measuring(tmp_path, monkeypatch, measured, capsys):
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != tmp_path)
    for output in ("gone/mine.toml", ".", "a.toml"):  # not there, a folder, not writable
        assert main(["profile", "--output", str(tmp_path / output)]) == 2
        assert "--output" in capsys.readouterr().err
    assert measured == []
    assert main(["profile", "--name", "other"]) == 0
    assert capsys.readouterr().out.startswith('name = "other"')
    assert measured == ["describe_cpu", "describe_gpu"]


def probes_of(true, *pairs):
    """Probes whose seconds are sums of multiples of two figures on the CPU `true`."""

    def seconds(rows, layers, cpu):
        return rows * cpu.dense.row_seconds + layers * cpu.dense.layer_seconds

    return [Probe("", seconds(*pair, true), partial(seconds, *pair)) for pair in pairs]


ROW_AND_LAYER = ("dense.row_seconds", "dense.layer_seconds")


def test_a_fit_finds_the_figures_of_its_probes_despite_a_disturbed_one(server):
    cpu = server.cpu
    true = replace(cpu, dense=replace(cpu.dense, row_seconds=4e-7, layer_seconds=1e-9))
    pairs = [(rows, layers) for rows in (1, 16, 256) for layers in (1, 4)]
    probes = probes_of(true, *pairs)
    probes[2] = probes[2]._replace(seconds=20 * probes[2].seconds)
    fitted = fit(cpu, (*ROW_AND_LAYER, "dense.exp_seconds", "memory.near_speed"), probes).dense
    assert fitted.row_seconds == pytest.approx(4e-7, rel=0.1)
    assert fitted.layer_seconds < cpu.dense.layer_seconds / 10  # it is negligible
    # No probe determines the others.
    assert fitted.exp_seconds == pytest.approx(cpu.dense.exp_seconds)
    assert fitted.sources == {"exp_seconds": NOT_MEASURED}


@pytest.mark.usefixtures("quick")
def test_missing_probes_of_several_threads_are_noted(monkeypatch):
    monkeypatch.setattr(machine, "HASHED", ())
    times = {1: Measured(1e-3, 320.0, 0.0, 0.0)}
    monkeypatch.setattr(machine, "measure", lambda probe, batch, threads, _: times.get(threads))
    cores = frozenset(range(4))
    topology = Topology(cores, (), tuple(frozenset({core}) for core in cores))
    monkeypatch.setattr(machine, "read_topology", lambda: topology)
    lines = []
    cpu, _ = machine.describe_cpu("measured", lines.append)
    assert "4 probes of several threads are missing" in lines[-1]
    assert (cpu.threads, cpu.cores, cpu.source) == (4, 4, "measured")
    assert cpu.memory.sources["near_speed"] == NOT_MEASURED
    assert cpu.sparse.sources["fetch_seconds"] == NOT_MEASURED


def test_leaving_the_private_cache_is_never_free(server):
    """A shared cache that seems to be faster than the private one is an error of the fit."""
    memory = replace(server.cpu.memory, shared_speed=10 * server.cpu.memory.private_speed)
    limited = machine._limited(replace(server.cpu, memory=memory))
    assert limited.memory.shared_speed == memory.private_speed


@pytest.mark.parametrize(
    ("shared", "siblings", "cores"),
    [("0-15", "0,8", 8), ("0-7", None, 8), ("0-1", "0-1", 1), (None, "0", 1)],
)
def test_a_cache_is_shared_by_physical_cores(tmp_path, shared, siblings, cores):
    for name, text in (
        ("cache/index0/shared_cpu_list", shared and siblings),
        ("cache/index3/shared_cpu_list", shared),
        ("topology/thread_siblings_list", siblings),
    ):
        if text is not None:
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
    assert cores_per_cache(tmp_path) == cores
