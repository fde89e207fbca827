"""The memory of a run, by arithmetic; tests/integration/test_footprint.py measures it."""

from dataclasses import replace

import pytest

from hogbatch.config import lsh
from hogbatch.config.backbone import Backbone
from hogbatch.config.values import WorkerRequest
from hogbatch.errors import UsageError
from hogbatch.machine import budget
from hogbatch.model.footprint import (
    LARGE,
    PROCESS,
    RunSizes,
    add,
    coordinator,
    cpu_worker,
    describe,
    expect_memory,
    gpu_worker,
    label_vectors,
    segments,
    total,
    whole_run,
)
from hogbatch.model.network import Network
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel

DENSE = RunSizes(Network.build(64, (128, 32), 16, "relu", "softmax"), 1, 10**6, 1000, sparse=False)
SPARSE = replace(DENSE, sparse=True)
HUGE = RunSizes(Network.build(10**8, (16,), 1, "relu", "logistic"), 1, 4096, 4, sparse=True)
CPU2 = (WorkerRequest("cpu", threads=2),)


def test_the_segments_have_the_size_of_their_layout():
    shared = segments(DENSE)
    fields = SharedModel.fields(DENSE.network.parameters, 1)
    laid_out = arrange({name: fields[name] for name in ("model/params", "model/first")}).size
    assert shared["model"] == shared["optimizer state"] == 4 * DENSE.network.parameters
    assert abs(shared["model"] + shared["optimizer state"] - laid_out) <= 4096
    assert shared["data"] == 10**6


def test_a_thread_keeps_only_slots_of_dense_layers():
    parameters = DENSE.network.parameters
    assert DENSE.thread_state == 4 * parameters
    assert SPARSE.thread_state == 4 * (parameters - 64 * 128)
    assert replace(DENSE, slots=2).thread_state == 8 * parameters
    assert replace(DENSE, slots=0).thread_state == 0
    hashed = replace(SPARSE, lsh=lsh.defaults("dwta", 16, 0))
    assert hashed.thread_state == 4 * (parameters - 64 * 128 - 32 * 16 - 16)


def test_a_team_has_slots_and_batches_together():
    name, working = "optimizer state of threads", "working memory of threads"
    for threads in (1, 2, 9):
        assert cpu_worker(DENSE, threads)[name] == (threads - 1) * DENSE.thread_state
    one, two, alone = (cpu_worker(DENSE, 8, teams) for teams in (1, 2, 8))
    assert (one[name], two[name]) == (0, DENSE.thread_state)
    assert alone == cpu_worker(DENSE, 8)
    assert two[working] - one[working] == one[working] - alone[working] > 0


def test_a_thread_copies_no_patches_of_pictures():
    backbone = Backbone.parse("28x28x16,conv:16x3x3,pool:28")
    network = Network.build(backbone.features, (), 2, "relu", "softmax", backbone=backbone)
    sizes, values = RunSizes(network, 1, 10**6, 1000, sparse=False), 2 * 28 * 28 * 16
    two = cpu_worker(sizes, 2)["working memory of threads"]
    one = cpu_worker(sizes, 1)["working memory of threads"]
    assert two - one == pytest.approx(2 * 256 * 4 * values, rel=0.01)  # with gradients


def test_a_large_model_is_copied_once_and_a_small_one_several_times():
    large = replace(DENSE, network=Network.build(64, (LARGE // 256,), 1, "relu", "logistic"))
    copies = coordinator(large, checkpoints=True, average=False)["copies of the model"]
    assert copies == large.model
    mean = coordinator(large, checkpoints=True, average=True)["copies of the model"]
    assert mean == 2 * large.model
    small = coordinator(DENSE, checkpoints=False, average=False)["copies of the model"]
    assert small == DENSE.model + 2 * (DENSE.model + DENSE.state)
    assert coordinator(DENSE, checkpoints=True, average=False)["copies of the model"] > small


def test_hash_tables_are_counted_only_for_a_hashed_output_layer():
    network = Network.build(64, (32,), 100_000, "relu", "softmax", output_major=True)
    settings = lsh.defaults("dwta", 100_000, 0)
    hashed = replace(SPARSE, network=network, lsh=settings)
    tables = cpu_worker(hashed, 1)["hash tables"]
    assert tables > 2 * 4 * settings.tables * 2**settings.bits * settings.bucket
    assert "hash tables" not in cpu_worker(DENSE, 1)


def test_label_vectors_are_counted_when_the_workers_have_ended():
    settings = lsh.defaults("dwta", 100_000, 0)
    network = Network.build(64, (32,), 100_000, "relu", "softmax", output_major=True)
    sizes = replace(SPARSE, network=network, lsh=settings)
    given = {"checkpoints": True, "average": True}
    assert not label_vectors(sizes) and "hash tables" in whole_run(sizes, CPU2, **given)
    needed = whole_run(replace(sizes, described=100_000), CPU2, **given)
    assert needed["label vectors"] > 50 * 8 * 100_000 and "hash tables" not in needed
    near = whole_run(replace(sizes, described=100_000, near=10**7), CPU2, **given)
    assert near["label vectors"] >= 8 * 50 * 100_000 + 48 * 10**7
    few = replace(sizes, described=10)
    assert whole_run(few, CPU2, **given) == whole_run(sizes, CPU2, **given)


def test_a_gpu_needs_little_memory_on_the_host():
    real, rehearsed = (gpu_worker(HUGE, on_host=on_host) for on_host in (False, True))
    assert total(real) < total(rehearsed) / 2
    assert rehearsed["copies of the data"] > 0


def test_the_data_as_read_are_freed_before_the_rest_is_allocated():
    """The needs before and after are not added up."""
    much = replace(DENSE, data=10**12)
    assert total(whole_run(much, CPU2, checkpoints=True, average=False)) == total(segments(much))
    little = whole_run(DENSE, CPU2, checkpoints=True, average=False)
    parts = coordinator(DENSE, checkpoints=True, average=False), cpu_worker(DENSE, 2)
    assert total(little) == total(add([segments(DENSE), *parts])) - DENSE.data
    assert total(little) > PROCESS


def test_a_hundred_million_features_by_16_need_20_gigabytes():
    parts = whole_run(HUGE, CPU2, checkpoints=True, average=False)
    assert total(parts) == pytest.approx(20.5e9, rel=0.01)
    assert describe(parts) == (
        "model 6.4 GB, optimizer state 6.4 GB, copies of the model 6.4 GB, "
        "working memory of threads 1.2 GB"
    )


def test_the_error_names_the_parts_in_one_sentence(monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda: 10**12)
    monkeypatch.setattr(budget, "memory_quota", lambda: 10**9)
    with pytest.raises(UsageError) as raised:
        expect_memory(
            {"model": 3 * 10**9, "copies": 10**9, "trifles": 10**6, "none": 0}, "this run"
        )
    said = str(raised.value)
    assert said.startswith(
        "expected 4 GB of free memory for this run (model 3 GB, copies 1 GB); got 1 GB (the limit "
        "of its cgroup): use fewer features"
    )
    expect_memory({"model": 10**6}, "this run")
