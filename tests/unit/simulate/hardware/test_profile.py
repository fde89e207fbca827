"""`hogbatch profile` measures this machine, and finds the figures that probes were made with."""

import os
from functools import partial
from threading import Lock

import pytest
from msgspec.structs import replace

from hogbatch.cli.main import main
from hogbatch.machine.topology import Topology
from hogbatch.simulate.hardware.cpu_cost import CpuCost
from hogbatch.simulate.hardware.description import read_server
from hogbatch.simulate.profile import cpu as on_cpu, machine, networks
from hogbatch.simulate.profile.cpu import Measured
from hogbatch.simulate.profile.fit import NOT_MEASURED, Probe, fit
from hogbatch.simulate.profile.machine import cores_per_cache
from hogbatch.simulate.profile.networks import DENSE, HASHED, SPARSE
from tests.unit.simulate.hardware.conftest import dense_workload


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
    assert "hogbatch profile" in server.cpu.source
    memory = server.cpu.memory
    assert memory.far_speed == pytest.approx(memory.near_speed / 2, rel=1e-3)
    assert list(tmp_path.iterdir()) == [file]
    err = capsys.readouterr().err
    assert "CPU: " in err
    assert "probes, median error" in err


@pytest.fixture
def measured(monkeypatch, server):
    """The names of what `hogbatch profile` measures, with fixed results."""
    found, probes = [], [Probe("one", 1.0, lambda _: 1.0)]
    results = {"describe_cpu": server.cpu, "describe_gpu": server.gpus[0]}
    for name, described in results.items():

        def describe(*_, name=name, described=described):
            found.append(name)
            return described, probes

        monkeypatch.setattr(machine, name, describe)
    return found


def test_a_description_is_printed_without_an_output(measured, capsys):
    assert main(["profile", "--name", "other"]) == 0
    assert capsys.readouterr().out.startswith('name = "other"')
    assert measured == ["describe_cpu", "describe_gpu"]


def test_an_output_is_checked_before_measuring(tmp_path, monkeypatch, measured, capsys):
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != tmp_path)
    for output in ("gone/mine.toml", ".", "a.toml"):  # not there, a folder, not writable
        assert main(["profile", "--output", str(tmp_path / output)]) == 2
        assert "--output" in capsys.readouterr().err
    assert measured == []


def probes_of(cpu, *workloads, batches=(1, 64, 256, 1024)):
    """What batches of networks take on `cpu`."""

    def seconds(workload, rows, cpu):
        return CpuCost(cpu, workload, 1).train_seconds(rows, 0)

    return [
        Probe(f"{rows}", seconds(workload, rows, cpu), partial(seconds, workload, rows))
        for workload in workloads
        for rows in batches
    ]


def with_dense(cpu, **figures):
    return replace(cpu, dense=replace(cpu.dense, **figures))


def test_a_fit_finds_the_figures_of_its_probes(server):
    true = server.cpu
    sizes = [(54, 512, 512, 7), (300, 256, 2), (80, 1024, 1024, 10)]
    workloads = [dense_workload(each, slots=slots) for each in sizes for slots in (0, 1)]
    probes = probes_of(true, *workloads, batches=(1, 16, 256))
    start = with_dense(true, flops=true.dense.flops / 3, step_seconds=1e-10)
    start = replace(start, memory=replace(true.memory, private_speed=1e11))
    fitted = fit(start, ("dense.flops", "memory.private_speed", "dense.step_seconds"), probes)
    assert fitted.dense.flops == pytest.approx(true.dense.flops, rel=0.05)
    for probe in probes:
        assert probe.predict(fitted) == pytest.approx(probe.seconds, rel=0.05)


def test_one_disturbed_probe_hardly_changes_a_fit(server):
    probes = probes_of(server.cpu, dense_workload(slots=0), batches=(64, 128, 256, 512, 1024))
    probes[2] = probes[2]._replace(seconds=20 * probes[2].seconds)
    fitted = fit(server.cpu, ("dense.flops",), probes)
    assert fitted.dense.flops == pytest.approx(server.cpu.dense.flops, rel=0.15)


def test_only_figures_that_no_probe_determines_keep_their_value_and_are_labelled(server):
    true = with_dense(server.cpu, flops=server.cpu.dense.flops / 2, cell_seconds=1e-15)
    probes = probes_of(true, dense_workload((54, 2048, 7), slots=0))
    names = ("dense.flops", "dense.cell_seconds", "dense.exp_seconds", "memory.near_speed")
    cpu = fit(server.cpu, names, probes)
    assert cpu.dense.flops < 0.6 * server.cpu.dense.flops
    assert cpu.dense.cell_seconds < server.cpu.dense.cell_seconds  # it is negligible
    assert cpu.dense.sources == {"exp_seconds": NOT_MEASURED}
    assert cpu.dense.exp_seconds == pytest.approx(server.cpu.dense.exp_seconds)
    assert cpu.memory.sources["near_speed"] == NOT_MEASURED  # there is only one thread


class FixedRun:
    """A thread of a probe network that records in `log` what it does."""

    def __init__(self, log, lock):
        self.log, self.lock = log, lock

    def draw(self, rows):
        with self.lock:
            self.log.append("draw")

    def train(self, drawn):
        with self.lock:
            self.log.append("train")


def test_threads_draw_their_rows_before_any_of_them_trains():
    log, lock = [], Lock()
    runs = [FixedRun(log, lock) for _ in range(16)]
    for _ in range(20):
        on_cpu._together(runs, 10)
        assert log == 16 * ["draw"] + 16 * ["train"]
        log.clear()


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
    [("0-15", "0,8", 8), ("0-7", "0", 8), ("0-7", None, 8), ("0-1", "0-1", 1), (None, "0", 1)],
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
