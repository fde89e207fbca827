from dataclasses import replace

import pytest

from benchmarks.common.servers import Processors
from benchmarks.rehearsals.methods import KINDS, kinds_of, neighbours
from benchmarks.rehearsals.search import Batches, Place, Search
from benchmarks.rehearsals.useful import Range, cpu_batches, members_of_teams, useful_range
from hogbatch.simulate.rehearsal import rehearsal
from tests.support.rehearsed_cells import BATCHES, BOTH, SAMPLES, SERVER, SMT, result


def names(methods):
    return [method.name for method in methods]


@pytest.mark.parametrize(
    ("processors", "alone"),
    [
        (Processors(64, 64), {"cpu-64": "cpu:64"}),
        (BOTH, {"gpu-512": "gpu:0", "cpu-64": "cpu:4", "cpu": "cpu:4"}),
        (
            SMT,
            {
                "gpu-512": "gpu:0",
                "gpus-512": "gpu:0,gpu:1",
                "cpu-64": "cpu:56",
                "cpu": "cpu:28",
                "cpu-56threads": "cpu:56",
            },
        ),
    ],
)
def test_the_methods_of_a_server_are_its_devices_alone_and_both_policies(processors, alone):
    place = Place("w8a", SERVER, processors, KINDS, BATCHES)
    assert {method.name: method.flags[1] for method in place.first()} == alone
    assert [method.alone for method in place.first()] == [True] * len(alone)
    assert [method.flags for method in place.together()] == [
        *(("--policy", "hogbatch"), ("--policy", "adaptive")),
    ]


def test_neighbours_are_half_and_twice_the_batch_and_the_other_number_of_threads():
    assert names(neighbours(BOTH, "gpu-512", 16, 4096)) == ["gpu-256", "gpu-1024"]
    assert names(neighbours(BOTH, "gpu-16", 16, 16)) == []
    found = list(neighbours(SMT, "cpu-64", 1, 64))
    assert names(found) == ["cpu-32", "cpu-64-28threads"]
    assert found[1].flags[:2] == ("--workers", "cpu:28")
    assert names(neighbours(SMT, "cpu-64-28threads", 64, 128)) == ["cpu-128-28threads", "cpu-64"]


def test_where_threads_compute_together_threads_on_their_own_are_another_method():
    smt = replace(SMT, members=28)
    batches = {**BATCHES, "hogwild": Batches([16])}
    found = {m.name: m for m in Place("w8a", SERVER, smt, KINDS, batches).first()}
    assert list(found) == ["gpu-512", "gpus-512", "cpu-64", "hogwild-16", "cpu"]
    assert "--cpu-teams" not in found["cpu-64"].flags
    assert found["hogwild-16"].flags[:4] == ("--workers", "cpu:56", "--cpu-teams", "56")
    assert found["hogwild-16"].alone and not found["hogwild-16"].on_gpu
    near = {m.name: m for m in neighbours(smt, "hogwild-16", 16, 32)}
    assert list(near) == ["hogwild-32", "hogwild-16-28threads"]
    assert near["hogwild-16-28threads"].flags[:4] == ("--workers", "cpu:28", "--cpu-teams", "28")
    assert names(neighbours(smt, "cpu-64", 64, 64)) == []
    assert "hogwild" not in kinds_of(SMT)


@pytest.mark.parametrize(
    ("server", "members"), [("h100-16cores", 16), ("k80-28cores", 28), ("epyc-2cores", 2)]
)
def test_the_members_of_teams_are_those_of_a_rehearsal(monkeypatch, server, members):
    assert members_of_teams("a9a", server, SAMPLES) == 1  # most of its work is in a sparse layer
    monkeypatch.setattr(rehearsal, "computes_together", lambda *given: True)
    assert members_of_teams("a9a", server, SAMPLES) == members


def searched(seeds=1, **seconds):
    """The names of the cells of each round, if the methods take these seconds (default: 9)."""
    batches = {"cpu": Batches([64]), "gpu": Batches([512, 128, 2048], 16, 2048)}
    results, rounds = [], []
    search = Search([Place("w8a", SERVER, BOTH, KINDS, batches)], seeds)
    for group in search.rounds(results):
        rounds.append([f"{cell.method.name}--{cell.seed}" for cell in group])
        for cell in group:
            late = seconds.get(cell.method.name.replace("-", "_"), 9.0)
            results.append(result(cell.method.name, late, kind=cell.method.kind, seed=cell.seed))
    return rounds


def test_neighbours_of_the_best_batch_run_until_it_is_not_at_an_edge():
    assert searched(gpu_512=1.0) == [
        ["gpu-512--0", "gpu-128--0", "gpu-2048--0", "cpu-64--0", "cpu--0"],
        ["gpu-256--0", "gpu-1024--0"],
        ["hogbatch--0", "adaptive--0"],
    ]
    downward = searched(gpu_128=2.0, gpu_64=1.0)
    assert downward[1:-1] == [["gpu-64--0", "gpu-256--0"], ["gpu-32--0"]]
    assert searched(gpu_2048=1.0)[1] == ["gpu-1024--0"]  # a larger batch is not useful
    assert len(searched(gpu_512=None, gpu_128=None, gpu_2048=None)) == 2  # none arrives


def test_other_seeds_repeat_the_methods_that_were_close_to_the_best_of_their_kind():
    *_, both, repeated, last = searched(seeds=2, gpu_512=1.0, gpu_256=1.25, gpu_1024=1.3)
    assert repeated == ["gpu-512--1", "cpu-64--1", "cpu--1", "gpu-256--1"]
    assert last == [name.replace("--0", "--1") for name in both]
    *_, repeated, _ = searched(seeds=2, cpu_64=None)
    assert [name for name in repeated if name.startswith("cpu")] == ["cpu--1"]  # none arrived


def test_the_first_batches_are_spread_over_the_useful_range_and_suit_teams():
    ranges = {(512, 8192): [2048, 512, 8192], (512, 512): [256, 128, 512], (16, 16): [16]}
    assert {limits: Range(*limits).spread() for limits in ranges} == ranges
    members = {1: (64, 16, 256), 4: (64, 16, 256), 16: (256, 64, 1024)}
    assert {count: cpu_batches(count) for count in members} == members


def test_the_useful_range_is_that_of_the_predicted_speeds_of_the_gpu():
    small, large = (useful_range("a9a", name, SAMPLES) for name in ("k80-28cores", "h100-16cores"))
    assert 16 <= small.low < small.high and small.low < large.low <= large.high
