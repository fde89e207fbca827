"""`hogbatch profile` measures this machine, and finds the figures that probes were made with."""

from dataclasses import replace
from functools import partial

import pytest

from hogbatch.cli import main
from hogbatch.servers.cpu_cost import CpuCost
from hogbatch.servers.description import read_server
from hogbatch.servers.profile.fit import Probe, fit
from tests.unit.servers.conftest import dense_workload


def test_a_quick_profile_writes_a_description(tmp_path, capsys):
    file = tmp_path / "mine.toml"
    assert main(["profile", "--quick", "--name", "mine", "--output", str(file)]) == 0
    server = read_server(str(file))
    assert server.name == "mine"
    assert "host" in [gpu.ordinal for gpu in server.gpus]
    assert "hogbatch profile --quick" in server.cpu.source
    memory = server.cpu.memory
    assert memory.far_speed == pytest.approx(memory.near_speed / 2, rel=1e-3)
    assert list(tmp_path.iterdir()) == [file]
    err = capsys.readouterr().err
    assert "CPU: " in err
    assert "probes, median error" in err


def test_an_output_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys, server):
    from hogbatch.servers.profile import command

    gpu = server.gpus[0]
    probes = [Probe("one", 1.0, lambda _: 1.0)]
    monkeypatch.setattr(command, "describe_cpu", lambda *_: (server.cpu, probes))
    monkeypatch.setattr(command, "describe_host", lambda *_: (gpu, probes))
    assert main(["profile", "--output", str(tmp_path / "gone" / "mine.toml")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["profile", "--name", "other"]) == 0
    assert capsys.readouterr().out.startswith('name = "other"')


def seconds(workload, rows, cpu):
    return CpuCost(cpu, workload, 1).train_seconds(rows, 0)


def test_a_fit_finds_the_figures_of_its_probes(server):
    figures = ("dense.flops", "memory.private_speed", "dense.step_seconds")
    true = server.cpu
    probes = [
        Probe(f"{widths} {rows}", seconds(workload, rows, true), partial(seconds, workload, rows))
        for widths in ((54, 512, 512, 7), (300, 256, 2), (80, 1024, 1024, 10))
        for workload in (dense_workload(widths), dense_workload(widths, slots=0))
        for rows in (1, 16, 256)
    ]
    start = replace(
        true,
        dense=replace(true.dense, flops=true.dense.flops / 3, step_seconds=1e-10),
        memory=replace(true.memory, private_speed=1e11),
    )
    fitted = fit(start, figures, probes)
    assert fitted.dense.flops == pytest.approx(true.dense.flops, rel=0.05)
    for probe in probes:
        assert probe.predict(fitted) == pytest.approx(probe.seconds, rel=0.05)


def test_one_disturbed_probe_hardly_changes_a_fit(server):
    workload = dense_workload(slots=0)
    probes = [
        Probe(f"{rows}", seconds(workload, rows, server.cpu), partial(seconds, workload, rows))
        for rows in (64, 128, 256, 512, 1024)
    ]
    probes[2] = probes[2]._replace(seconds=20 * probes[2].seconds)
    fitted = fit(server.cpu, ("dense.flops",), probes)
    assert fitted.dense.flops == pytest.approx(server.cpu.dense.flops, rel=0.15)
