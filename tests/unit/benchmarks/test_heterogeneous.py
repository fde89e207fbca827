import argparse
import math
from pathlib import Path

import pytest

import benchmarks.heterogeneous.__main__ as heterogeneous
from benchmarks.common.cases import CASES
from benchmarks.common.search import TunedSettings
from benchmarks.heterogeneous.__main__ import (
    evaluated,
    precision_in,
    with_epochs,
    worker_flags,
)
from benchmarks.heterogeneous.table import both_since, device_totals, ratio, table
from benchmarks.peers.pytorch_gpu import BATCHES
from hogbatch.data import samples

SAMPLES = str(Path(samples.__file__).parent)


def point(seconds, loss, epochs=0.0):
    return {"seconds": seconds, "epochs": epochs, "test_loss": loss}


def worker(device, updates=10, **other):
    made = {"device": device, "updates": updates, "update_share": 0.5, "busy": 0.8}
    return made | {"batch_trace": [[0.0, 64], [2.0, 32]]} | other


def run(name, seconds, seed=0, workers=()):
    devices = {device: device_totals(workers, device) for device in ("cpu", "gpu")}
    made = {"set": "w8a", "name": name, "seed": seed, "error": None, "devices": devices}
    return made | {"seconds": seconds, "epochs": seconds and 2.0}


def flags(**given):
    usual = {"threads": 3, "threads_with_gpu": 2, "gpu": "0", "extra": []}
    return argparse.Namespace(**(usual | given))


@pytest.mark.parametrize(
    ("seconds", "cells"),
    [
        ({"cpu": 4.0, "gpu": 2.0, "adaptive": 1.0}, ["2.00", "better alone", "0.50"]),
        ({"cpu": 4.0, "gpu": math.inf, "adaptive": math.inf}, ["better alone", *["> 15.00"] * 2]),
        ({"cpu": math.inf, "gpu": math.inf, "adaptive": 6.0}, ["-", "-", "< 0.10"]),
        ({"adaptive": 6.0, "pytorch": 1.0}, ["-", "-"]),
    ],
)
def test_the_ratio_is_to_the_device_that_arrived_first_alone(seconds, cells):
    """It is a bound if one of the two did not arrive."""
    assert [ratio(seconds, kind, 60.0) for kind in seconds] == cells


def test_totals_are_those_of_all_workers_of_a_device():
    workers = [worker("gpu", 10, busy=0.5, staleness=2.0), worker("gpu", 20, busy=1.0, staleness=4)]
    found = device_totals([*workers, worker("cpu", 70)], "gpu")
    assert (found["updates"], found["share"], found["since"]) == (30, 1.0, 0.0)
    assert (found["busy"], found["staleness"]) == (0.75, 3.0)
    assert device_totals([worker("cpu")], "gpu") is None


def test_both_train_since_the_later_one_was_ready():
    cpu, late = device_totals([worker("cpu")], "cpu"), {"since": 3.5}
    assert both_since({"cpu": cpu, "gpu": late}) == 3.5
    assert both_since({"cpu": cpu, "gpu": None}) is None
    assert both_since({"cpu": cpu, "gpu": {"since": None}}) == math.inf


def test_the_table_has_medians_over_the_seeds():
    both = [worker("cpu", 40, update_share=0.8), worker("gpu", 10, update_share=0.2, busy=0.25)]
    late = [worker("cpu"), worker("gpu", batch_trace=[[3.0, 64]])]
    runs = [run("cpu", 4.0, workers=[worker("cpu", 50, update_share=1.0)])]
    runs += [run("adaptive", 1.0, seed, both) for seed in range(3)]
    runs += [run("pytorch", seconds) for seconds in (1.0, None, None)]
    runs += [run("hogbatch", 2.0, workers=late)]
    assert table(runs, {"w8a": 0.05}, 60.0).splitlines()[2:] == [
        "| w8a, 0.05 | cpu | 4 s | better alone | 2 | 50 | - | 1 | 0.8 | - | - | - |",
        "| w8a, 0.05 | adaptive | 1 s | 0.25 | 2 | 40 | 10 | 0.8 | 0.8 | 0.25 | - | 0 |",
        "| w8a, 0.05 | pytorch | > 60 s | > 15.00 | - | - | - | - | - | - | - | - |",
        "| w8a, 0.05 | hogbatch | 2 s | 0.50 (before both trained) "
        "| 2 | 10 | 10 | 0.5 | 0.8 | 0.8 | - | 3 |",
    ]


@pytest.mark.parametrize(
    ("losses", "reached"), [([None, 0.05, 0.04], (2.0, 0.2)), ([0.06, None], (None, None))]
)
def test_seconds_and_epochs_are_those_of_the_first_evaluation_at_the_target(losses, reached):
    history = [point(1.0 + n, loss, 0.1 + 0.1 * n) for n, loss in enumerate(losses)]
    done = evaluated({"history": history, "workers": [worker("cpu")]}, 0.05)
    assert (done["seconds"], done["epochs"]) == reached
    assert done["devices"]["cpu"]["updates"] == 10


def test_the_epochs_of_a_peer_are_in_proportion_to_its_seconds():
    found = with_epochs([[0.0, 0.7], [1.0, 0.5], [4.0, 0.1]], epochs=8.0)
    assert [each["epochs"] for each in found] == [0.0, 2.0, 8.0]


def test_kinds_differ_in_workers_and_policy_and_extra_flags_go_to_gpu_runs():
    more = ["--no-pin", "--precision", "tf32"]
    given = flags(extra=more)
    assert (precision_in(more), precision_in([])) == ("tf32", "float32")
    assert worker_flags(given, "cpu") == ["--workers", "cpu:3"]
    assert worker_flags(given, "gpu") == ["--workers", "gpu:0", *more]
    assert worker_flags(flags(gpu="host"), "hogbatch") == [
        *("--workers", "cpu:2,gpu:host", "--policy", "hogbatch", "--start-with", "2"),
    ]


def test_pytorch_has_the_setting_of_a_search_or_else_of_the_case(monkeypatch, tmp_path):
    asked = []

    def train_once(name, directory, setting, seed, watch):
        asked.append(setting)
        return {"curve": [[0.0, 0.7], [1.0, 0.3]], "rows": 100}

    def train():
        given = {"data": Path(SAMPLES), "tune": False, "past_target": False, "max_seconds": 1.0}
        return heterogeneous.pytorch(flags(**given), "a9a")(0)

    monkeypatch.setattr(heterogeneous, "train_once", train_once)
    monkeypatch.setattr(heterogeneous, "SETTINGS", TunedSettings(tmp_path / "tuned.json"))
    assert train()["setting_from"] == "default"
    tuned = {"optimizer": "sgd", "batch": 64, "lr": 0.5}
    heterogeneous.SETTINGS.keep("a9a", "pytorch-gpu", {"setting": tuned})
    assert train()["setting_from"] == "search"
    for used, known in zip(asked, (CASES["a9a"].setting, tuned), strict=True):
        assert used.items() >= known.items()


def test_the_loss_of_a_metric_is_one_minus_the_metric():
    history = [point(1.0, 7.0) | {"test_values": {"P@1": 0.25}}, point(2.0, None)]
    history[1]["test_values"] = {}
    assert CASES["citeulike"].points(history) == [point(1.0, 0.75), point(2.0, None)]
    assert CASES["w8a"].points(history)[0]["test_loss"] == 7.0
    assert all(case.setting["batch"] in BATCHES for case in CASES.values())
