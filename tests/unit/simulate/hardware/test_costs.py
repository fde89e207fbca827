"""Predicted times depend on sizes as real ones do, and are plausible on the bundled servers."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from hogbatch.kernels.cpu.backbone import STAGES
from hogbatch.simulate.hardware.cpu_cost import CpuCost, mean_found
from hogbatch.simulate.hardware.description import bundled_names, parse_server, read_server
from hogbatch.simulate.hardware.gpu_cost import GpuCost
from hogbatch.simulate.hardware.workload import weights
from tests.unit.simulate.hardware.conftest import WORKLOADS, dense_workload, sparse_workload

BATCHES = st.integers(1, 4096)
SHAPES = st.one_of(  # threads, and how many of them are a team
    st.tuples(st.integers(1, 64), st.just(1)),
    st.sampled_from([(2, 2), (16, 16), (16, 8), (64, 64), (64, 16), (64, 8)]),
)
NAMES = st.sampled_from(sorted(WORKLOADS))
SERVERS = st.sampled_from(bundled_names())


def stored(workload, rows):
    return round(workload.stored * rows) if workload.sparse else 0


@settings(deadline=None, max_examples=100)
@given(SERVERS, NAMES, BATCHES, SHAPES, st.integers(0, 500))
def test_a_larger_batch_takes_longer_but_less_per_row_and_its_stages_its_time(
    name, kind, own, shape, active
):
    threads, members = shape
    kind = kind if members == 1 or kind == "sparse" else "dense"  # the loops that have teams
    workload, rows = WORKLOADS[kind], own * members
    cost = CpuCost(read_server(name).cpu, workload, threads, members)
    one, two = (cost.train_seconds(n, stored(workload, n), active or 200) for n in (rows, 2 * rows))
    assert one < two <= 2 * one * (1 + 1e-9)
    stages = cost.stage_seconds(rows, stored(workload, rows), active or 200)
    layers, alone = len(workload.layers), STAGES if workload.backbone else 2 * len(workload.layers)
    assert len(stages) == (alone if members == 1 else 1 + layers)
    assert min(stages) > 0
    assert sum(stages) == pytest.approx(one, rel=1e-9)


@settings(deadline=None, max_examples=50)
@given(SERVERS, NAMES, BATCHES, st.integers(1, 63))
def test_more_threads_never_make_one_thread_faster(name, kind, rows, threads):
    """Up to the share of the other threads whose caches are near, which grows with siblings."""
    workload, cpu = WORKLOADS[kind], read_server(name).cpu
    fewer, more = (
        CpuCost(cpu, workload, count).train_seconds(rows, stored(workload, rows))
        for count in (threads, threads + 1)
    )
    tolerance = 0.01 if threads >= cpu.cores else 1e-9
    assert fewer <= more * (1 + tolerance)


@settings(deadline=None, max_examples=50)
@given(SERVERS, st.sampled_from(["dense", "pictures", "sequences"]), BATCHES)
def test_a_gpu_takes_longer_for_more_rows_but_less_per_row(name, kind, rows):
    server = read_server(name)
    for gpu in server.gpus:
        cost = GpuCost(gpu, WORKLOADS[kind])
        one, two = cost.train_seconds(rows), cost.train_seconds(2 * rows)
        assert one < two <= 2 * one


def test_more_work_takes_longer(server):
    def seconds(kind, rows, values, *hashed):
        return CpuCost(server.cpu, WORKLOADS[kind], 1).train_seconds(rows, values, *hashed)

    def slots(count):
        return CpuCost(server.cpu, dense_workload(slots=count), 1).train_seconds(16, 0)

    for kind, values in (("dense", 0), ("sparse", 5120), ("pictures", 0), ("sequences", 0)):
        evaluated = CpuCost(server.cpu, WORKLOADS[kind], 1).evaluate_seconds(256, values)
        assert 0 < evaluated < seconds(kind, 256, values)
    assert slots(0) < slots(1) < slots(2)
    assert seconds("hashed", 64, 1280, 100) < seconds("hashed", 64, 1280, 1000)  # active outputs
    fuller = [seconds("hashed", 64, 1280, 100, found) for found in (200.0, 900.0)]
    assert fuller[0] < fuller[1]
    tables = CpuCost(server.cpu, WORKLOADS["hashed"], 1)
    assert tables.rebuild_seconds(2000) == pytest.approx(2 * tables.rebuild_seconds(1000))
    assert CpuCost(server.cpu, WORKLOADS["dense"], 1).rebuild_seconds(1000) == 0


def test_two_threads_compete_for_the_weights_of_small_batches(server):
    workload = dense_workload()
    one, two = (CpuCost(server.cpu, workload, count) for count in (1, 2))
    small, large = (two.train_seconds(b, 0) / one.train_seconds(b, 0) for b in (1, 256))
    assert small > 1.3
    assert 1 <= large < 1.1


def test_a_team_on_several_caches_waits_longer_for_its_barriers_and_its_rows():
    cpu = replace(read_server("epyc-64cores").cpu, cores_per_cache=64)
    split = replace(cpu, cores_per_cache=8)
    together, apart = (
        CpuCost(each, WORKLOADS["dense"], 16, 16).train_seconds(256, 0) for each in (cpu, split)
    )
    assert apart > 1.05 * together


def test_only_other_teams_make_a_team_fetch_all_weights(server):
    cpu = replace(server.cpu, threads=16, cores=16, cores_per_cache=16)
    slow = replace(cpu, memory=replace(cpu.memory, near_speed=1e6))  # nothing else takes as long
    cells = sum(weights(layer) for layer in WORKLOADS["dense"].layers)
    one, four = (
        CpuCost(slow, WORKLOADS["dense"], 16, members).stage_seconds(1, 0)[0] for members in (16, 4)
    )
    assert one == pytest.approx(15 / 16 * 4 * cells / 1e6, rel=0.01)
    assert four == pytest.approx(4 * cells / 1e6, rel=0.01)


def test_touched_features_never_exceed_the_stored_values_or_the_features():
    workload = sparse_workload()
    touched = [workload.touched(rows) for rows in (1, 10, 100, 100_000)]
    assert touched == sorted(touched)
    assert touched[0] <= 20
    assert touched[-1] == pytest.approx(sum(count for count, _ in workload.frequencies), rel=0.01)
    others = workload.touched_by_others(10, 2)
    assert workload.touched_by_others(10, 1) == 0
    assert touched[1] / 2 <= others < touched[1]


def test_outputs_found_are_those_of_an_average_output_not_of_an_average_bucket():
    counts = np.array([[3, 1, 0, 0], [0, 2, 2, 0]], np.int32)
    assert mean_found(counts, 8) == (9 + 1) / 4 + (4 + 4) / 4
    assert mean_found(counts, 2) == (4 + 1) / 3 + (4 + 4) / 4
    assert mean_found(np.zeros((2, 4), np.int32), 8) == 0.0


def test_times_of_a_merge_follow_the_number_of_touched_rows_and_the_speeds():
    server = read_server("h100-16cores")
    gpu = server.gpus[0]
    cost = GpuCost(gpu, sparse_workload((100_000, 64, 2)))
    few, one, two, everything = (cost.merge(touched) for touched in (100, 10_000, 20_000, None))
    assert 0 < few.merge < everything.merge
    assert two.pull - one.pull == pytest.approx(10_000 * 64 * 4 / gpu.mapped_speed)
    slow = GpuCost(replace(gpu, exchange_speed=gpu.exchange_speed / 2), cost._workload)
    assert slow.merge(None).blocking > 1.5 * everything.blocking
    assert slow.train_seconds(64) == cost.train_seconds(64)


@pytest.mark.parametrize("touched", [None, 100])
def test_sums_of_adagrad_take_time_where_they_are_merged(touched):
    usual, found = (
        GpuCost(
            read_server("k80-28cores").gpus[0],
            sparse_workload((100_000, 64, 2), exchanges_sums=sums),
        ).merge(touched)
        for sums in (False, True)
    )
    assert all(b > a for a, b in zip(usual, found, strict=True))


def test_only_workloads_that_allow_it_are_made_dense(server):
    workload = sparse_workload()
    gpu = replace(server.gpus[0], cell_seconds=1e-3)
    assert GpuCost(gpu, workload).densify
    assert not GpuCost(gpu, dataclasses.replace(workload, may_densify=False)).densify
    assert not GpuCost(server.gpus[0], WORKLOADS["dense"]).densify


def test_a_backward_pass_takes_twice_as_long_as_the_forward_pass_of_its_layer():
    workload = dense_workload()
    stages = CpuCost(read_server("epyc-2cores").cpu, workload, 1).stage_seconds(4096, 0)
    layers = len(workload.layers)
    for layer in range(1, layers - 1):
        forward, backward = stages[layer], stages[2 * layers - 1 - layer]
        assert backward / forward == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize("name", bundled_names())
def test_a_core_trains_thousands_of_rows_per_second(name):
    server = read_server(name)
    assert server.name == name
    alone = 64 / CpuCost(server.cpu, WORKLOADS["dense"], 1).train_seconds(64, 0)
    assert 10_000 < alone < 100_000
    threads = server.cpu.threads
    together = 64 * threads / CpuCost(server.cpu, WORKLOADS["dense"], threads).train_seconds(64, 0)
    assert 0.25 * server.cpu.cores * alone < together <= 1.2 * server.cpu.cores * alone


H200 = """
name = "data-sheet"
about = "A test"
based_on = "epyc-2cores"
[[gpus]]
ordinal = 0
model = "NVIDIA H200"
peak_flops = 67e12
peak_memory_speed = 4.8e12
peak_link_speed = 63e9
multiprocessors = 132
source = "data sheet"
"""


@pytest.mark.parametrize(
    ("kind", "measured"),  # microseconds on an H200 in float32 (docs/performance.md, pictures.md)
    [
        ("dense", {256: 108, 8192: 772}),
        ("pictures", {256: 489, 2048: 2690}),
        ("sequences", {256: 657, 2048: 1489}),
    ],
)
def test_batches_take_about_as_long_by_the_data_sheet_of_an_h200_as_measured(kind, measured):
    (gpu,) = parse_server(H200, "data-sheet").gpus
    cost = GpuCost(gpu, WORKLOADS[kind])
    assert 1e-4 < sum(cost.merge(None)) < 1e-3
    for rows, microseconds in measured.items():
        assert 0.8 < cost.train_seconds(rows) * 1e6 / microseconds < 1.25


@pytest.mark.parametrize(("kind", "measured"), [("pictures", 254), ("sequences", 84)])
def test_networks_with_layers_take_about_as_long_on_a_core_as_measured(server, kind, measured):
    """Microseconds for each of 64 rows (docs/servers.md)."""
    seconds = CpuCost(server.cpu, WORKLOADS[kind], 1).train_seconds(64, 0)
    assert 0.67 < seconds / 64 * 1e6 / measured < 1.5
