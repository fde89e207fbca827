"""Bundled descriptions give plausible speeds."""

import pytest

from hogbatch.simulate.hardware.cpu_cost import CpuCost
from hogbatch.simulate.hardware.description import bundled_names, read_server
from hogbatch.simulate.hardware.gpu_cost import GpuCost
from tests.unit.simulate.hardware.conftest import dense_workload

COVTYPE = dense_workload()


def test_all_servers_are_there():
    assert bundled_names() == [
        *("a100x2-64cores", "epyc-2cores", "epyc-64cores", "h100-16cores", "k80-28cores"),
        *("laptop-8cores", "v100-32cores"),
    ]


@pytest.mark.parametrize("name", bundled_names())
def test_a_core_trains_thousands_of_rows_per_second(name):
    server = read_server(name)
    assert server.name == name
    alone = 64 / CpuCost(server.cpu, COVTYPE, 1).train_seconds(64, 0)
    assert 10_000 < alone < 100_000
    threads = server.cpu.threads
    together = 64 * threads / CpuCost(server.cpu, COVTYPE, threads).train_seconds(64, 0)
    assert 0.25 * server.cpu.cores * alone < together <= 1.2 * server.cpu.cores * alone


def test_an_h100_trains_millions_of_rows_per_second_and_half_of_that_at_500_rows():
    server = read_server("h100-16cores")
    cost = GpuCost(server.gpus[0], server.cpu, COVTYPE)
    peak = 2**21 / cost.train_seconds(2**21)
    assert 5e6 < peak < 12e6
    assert 500 / cost.train_seconds(500) / peak == pytest.approx(0.5, abs=0.05)
    assert 1e-4 < sum(cost.merge(None)[:3]) < 1e-3
