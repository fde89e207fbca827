import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

import benchmarks.heterogeneous.__main__ as heterogeneous
from benchmarks.common import hogbatch_run
from benchmarks.common.cases import CASES
from benchmarks.common.hogbatch_run import TrainResult
from benchmarks.common.peer_process import process_limit
from benchmarks.common.search import TunedSettings
from benchmarks.heterogeneous.__main__ import (
    as_flag,
    evaluated,
    extra_flags,
    lost_workers,
    main,
    with_epochs,
    worker_flags,
)
from benchmarks.heterogeneous.table import (
    better_alone,
    both_since,
    device_totals,
    median_cell,
    ratio,
    table,
)
from benchmarks.peers.pytorch_gpu import BATCHES
from hogbatch.data import samples
from hogbatch.kernels.gpu.probe import Gpu, ProbeResult

SAMPLES = str(Path(samples.__file__).parent)


def point(seconds, loss, epochs=0.0):
    return {"seconds": seconds, "epochs": epochs, "test_loss": loss}


def worker(device, updates=10, **other):
    made = {"device": device, "updates": updates, "update_share": 0.5, "busy": 0.8}
    return made | {"batch_trace": [[0.0, 64], [2.0, 32]]} | other


def run(name, seconds, seed=0, workers=()):
    history = [point(1.0, 0.6, 0.5), point(2.0, 0.06, 1.0)]
    made = {"set": "w8a", "name": name, "seed": seed, "error": None, "history": history}
    devices = {device: device_totals(workers, device) for device in ("cpu", "gpu")}
    return made | {"seconds": seconds, "epochs": seconds and 2.0, "devices": devices}


def flags(**given):
    usual = {"threads": 3, "threads_with_gpu": 2, "gpu": "0", "extra": {}}
    return argparse.Namespace(**(usual | given))


# Both against the better alone --------------------------------------------------------------------


def test_the_better_device_alone_is_the_one_that_arrived_first():
    assert better_alone({"cpu": 3.0, "gpu": 2.0, "adaptive": 1.0, "pytorch": 0.5}) == "gpu"
    assert better_alone({"cpu": 3.0, "gpu": math.inf}) == "cpu"
    assert better_alone({"cpu": math.inf, "adaptive": 1.0}) is None


def test_the_ratio_is_to_the_better_device_alone():
    seconds = {"cpu": 4.0, "gpu": 2.0, "adaptive": 1.0}
    assert [ratio(seconds, kind, 60.0) for kind in seconds] == ["2.00", "better alone", "0.50"]


def test_a_kind_that_never_arrives_has_a_bound_from_below():
    seconds = {"cpu": 4.0, "gpu": math.inf, "hogbatch": math.inf}
    assert ratio(seconds, "hogbatch", 60.0) == ratio(seconds, "gpu", 60.0) == "> 15.00"


def test_where_neither_device_arrives_alone_the_bound_is_from_above():
    seconds = {"cpu": math.inf, "gpu": math.inf, "adaptive": 6.0, "hogbatch": math.inf}
    assert [ratio(seconds, kind, 60.0) for kind in seconds] == ["-", "-", "< 0.10", "-"]


def test_without_a_device_alone_there_is_no_ratio():
    assert ratio({"adaptive": 6.0, "pytorch": 1.0}, "adaptive", 60.0) == "-"


# The parts of the devices -------------------------------------------------------------------------


def test_a_part_is_that_of_all_workers_of_the_device():
    workers = [worker("gpu", 10, busy=0.5, staleness=2.0), worker("gpu", 20, busy=1.0, staleness=4)]
    assert device_totals([*workers, worker("cpu", 70)], "gpu") == {
        "updates": 30,
        "share": 1.0,
        "busy": 0.75,
        "staleness": 3.0,
        "since": 0.0,
    }


def test_a_summary_without_staleness_and_a_device_without_workers_are_gaps():
    found = device_totals([worker("cpu")], "cpu")
    assert found and found["staleness"] is None
    assert device_totals([worker("cpu")], "gpu") is None


def test_both_train_since_the_later_one_was_ready():
    cpu, gpu = (
        device_totals([worker("cpu")], "cpu"),
        device_totals([worker("gpu", batch_trace=[[3.5, 64]])], "gpu"),
    )
    assert both_since({"cpu": cpu, "gpu": gpu}) == 3.5
    assert both_since({"cpu": cpu, "gpu": None}) is None
    late = device_totals([worker("gpu", batch_trace=[])], "gpu")
    assert median_cell([both_since({"cpu": cpu, "gpu": late})]) == "never"


def test_figures_are_medians_of_the_seeds_that_have_them():
    assert median_cell([1.0, None, 3.0, 2.0]) == "2"
    assert median_cell([None]) == "-"
    assert [median_cell([each]) for each in (1234.4, 0.98765)] == ["1,234", "0.988"]


def test_the_table_has_seconds_ratios_updates_shares_and_use():
    both = [worker("cpu", 40, update_share=0.8), worker("gpu", 10, update_share=0.2, busy=0.25)]
    runs = [run("cpu", 4.0, workers=[worker("cpu", 50, update_share=1.0)])]
    runs += [run("adaptive", 1.0, seed, both) for seed in range(3)]
    runs += [run("pytorch", seconds) for seconds in (1.0, None, None)]
    assert table(runs, {"w8a": 0.05}, 60.0).splitlines()[2:] == [
        "| w8a, 0.05 | cpu | 4 s | better alone | 2 | 50 | - | 1 | 0.8 | - | - | - |",
        "| w8a, 0.05 | adaptive | 1 s | 0.25 | 2 | 40 | 10 | 0.8 | 0.8 | 0.25 | - | 0 |",
        "| w8a, 0.05 | pytorch | > 60 s | > 15.00 | - | - | - | - | - | - | - | - |",
    ]


@pytest.mark.parametrize(
    ("trace", "cells"),
    [
        ([], ("0.50 (before both trained)", "never |")),
        ([[3.0, 64]], ("0.50 (before both trained)", "3 |")),
        ([[1.5, 64]], ("0.50", "1.5 |")),
    ],
)
def test_a_ratio_from_before_both_trained_is_marked(trace, cells):
    both = [worker("cpu"), worker("gpu", batch_trace=trace)]
    runs = [run("cpu", 4.0), run("adaptive", 2.0, workers=both)]
    rows = [line.split(" | ") for line in table(runs, {"w8a": 0.05}, 60.0).splitlines()[2:]]
    assert [(row[3], row[-1]) for row in rows] == [("better alone", "- |"), cells]


# Runs ---------------------------------------------------------------------------------------------


def test_seconds_and_epochs_are_those_of_the_first_evaluation_at_the_target():
    history = [point(1.0, None, 0.1), point(2.0, 0.05, 0.2), point(3.0, 0.04, 0.3)]
    done = evaluated({"history": history, "workers": [worker("cpu")]}, 0.05)
    assert (done["seconds"], done["epochs"]) == (2.0, 0.2)
    assert done["devices"]["cpu"]["updates"] == 10


def test_a_run_that_never_reaches_the_target_has_neither():
    done = evaluated(
        {"history": [point(1.0, 0.06, 0.1), point(2.0, None, 0.2)], "workers": []}, 0.05
    )
    assert (done["seconds"], done["epochs"]) == (None, None)


def test_a_run_that_failed_or_lost_a_worker_says_so():
    whole = {"faults": {"workers_lost": 0}}
    assert lost_workers(whole) is None
    assert lost_workers({"faults": {"workers_lost": 1}}) == "1 of the workers lost"
    failed = TrainResult(2, "hogbatch: training has diverged\n", 1.0, whole)
    assert failed.error == "exit code 2: hogbatch: training has diverged"


def test_the_epochs_of_a_peer_are_in_proportion_to_its_seconds():
    assert with_epochs([[0.0, 0.7], [1.0, 0.5], [4.0, 0.1]], epochs=8.0) == [
        point(0.0, 0.7, 0.0),
        point(1.0, 0.5, 2.0),
        point(4.0, 0.1, 8.0),
    ]


def test_kinds_differ_in_workers_and_policy_and_extra_flags_go_to_gpu_runs():
    given = flags(extra={"merge_every": "4", "pin": "false"})
    more = ["--merge-every=4", "--no-pin"]
    assert worker_flags(given, "cpu") == ["--workers", "cpu:3"]
    assert worker_flags(given, "gpu") == ["--workers", "gpu:0", *more]
    assert worker_flags(flags(gpu="host"), "hogbatch") == [
        *("--workers", "cpu:2,gpu:host", "--policy", "hogbatch", "--start-with", "2"),
    ]
    assert worker_flags(given, "adaptive")[1:4] == ["cpu:2,gpu:0", "--policy", "adaptive"]


@pytest.mark.parametrize(
    ("which", "limits"),
    [("w8a", ["--target-loss", "0.05"]), ("citeulike", ["--eval-seconds", "0.05"])],
)
def test_a_run_has_limits_for_its_process_and_its_loss_or_metric(which, limits, monkeypatch):
    calls = []

    def train(command, limit_s):
        calls.append((command, limit_s))
        return TrainResult(-9, "killed", 1.0, {})

    monkeypatch.setattr(hogbatch_run, "train", train)
    given = flags(data=Path(SAMPLES), max_seconds=6.0, past_target=False)
    found = heterogeneous.train_ours(given, CASES[which], "cpu", 0)
    [(command, limit_s)] = calls
    assert found["error"] == "exit code -9: killed"
    assert command[-2:] == limits and limit_s == process_limit(6.0) > 60


def test_the_networks_of_the_paper_are_deep_and_have_sigmoids(tmp_path):
    for which, depth in (("w8a-paper", 8), ("covtype-paper", 6)):
        found = CASES[which].flags(tmp_path)
        assert found[found.index("--hidden") + 1] == ",".join(["512"] * depth)
        assert found[-2:] == ["--activation", "sigmoid"]


# The command line ---------------------------------------------------------------------------------


def test_extra_flags_are_read_as_hogbatch_reads_them():
    assert extra_flags("merge-every=4,pin=false") == {"merge_every": "4", "pin": "false"}
    assert extra_flags("") == {}
    assert as_flag("pin", "true") == "--pin"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("merge_every=x", "merge-every: expected a whole number; got 'x'"),
        ("merge_every=0", "merge-every must be above 0; got 0"),
        ("merge=4", "merge must be one of delta, overwrite, average; got '4'"),
        ("merge_evry=4", "unknown key 'merge_evry'; the nearest is 'merge-every'"),
        ("pin=4", "pin: expected true or false; got '4'"),
        ("merge_every", "expected FLAG=VALUE, as in merge_every=4; got 'merge_every'"),
        ("policy=fixed", "policy is set by the benchmark itself; remove it"),
    ],
)
def test_a_wrong_extra_flag_is_one_sentence_and_exit_code_2(text, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        main([SAMPLES, "--only", "a9a", "--gpu", "host", "--extra", text])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"--extra: {sentence}")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--gpu", "first"], "--gpu: expected the number of a GPU, or host; got 'first'"),
        (["--seeds", "0"], "--seeds: expected a whole number above 0; got '0'"),
        (["--max-seconds", "inf"], "--max-seconds: expected a number above 0; got 'inf'"),
        (["--only", "mnist"], "got mnist"),
    ],
)
def test_other_wrong_values_are_refused_too(given, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        main([SAMPLES, *given])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(sentence)


def refused(given, capsys):
    """The sentence with which exit code 2 comes."""
    assert main(given) == 2
    return capsys.readouterr().err.removeprefix("heterogeneous: ").strip()


def test_data_that_are_not_there_are_named(tmp_path, capsys):
    said = refused([str(tmp_path), "--only", "w8a", "--gpu", "host"], capsys)
    assert said.startswith(f"{tmp_path / 'w8a.svm.gz'} does not exist;")


def test_a_gpu_that_is_not_there_is_told_before_anything_runs(monkeypatch, capsys):
    monkeypatch.setattr(
        heterogeneous, "find_gpus", lambda: ProbeResult((Gpu(0, "A", 1), Gpu(2, "B", 1)))
    )
    assert refused([SAMPLES, "--only", "a9a", "--gpu", "1"], capsys) == (
        "--gpu 1: no such GPU (usable: 0, 2); --gpu host runs without one"
    )


def test_a_gpu_is_described_by_name_memory_and_driver(monkeypatch):
    probed = ProbeResult((Gpu(0, "A", 1), Gpu(2, "B", 7)))
    monkeypatch.setattr(heterogeneous, "find_gpus", lambda: probed)
    found = heterogeneous.gpu_description(2)
    assert (found["name"], found["memory"]) == ("B", 7)
    assert found["driver"] is None or found["driver"][0].isdigit()


def test_with_nothing_left_to_measure_there_is_no_empty_table(capsys):
    given = [SAMPLES, "--only", "a9a", "--gpu", "host", "--kinds", "pytorch"]
    assert refused(given, capsys).startswith("nothing is left to measure;")


def test_results_that_could_not_be_written_are_refused_at_the_start(tmp_path, capsys):
    target = tmp_path / "none" / "out.json"
    given = [SAMPLES, "--only", "a9a", "--gpu", "host", "--json", str(target)]
    assert refused(given, capsys).endswith(f"the directory {tmp_path / 'none'} does not exist")


def test_a_run_that_failed_is_kept_and_makes_the_exit_code_1(monkeypatch, tmp_path):
    failed = {"error": "exit code 12: no device", "history": [], "workers": []}
    monkeypatch.setattr(heterogeneous, "train_ours", lambda *given: dict(failed))
    path = tmp_path / "out.json"
    given = [SAMPLES, "--only", "a9a", "--gpu", "host", "--kinds", "gpu", "--seeds", "1"]
    assert main([*given, "--json", str(path)]) == 1
    [kept] = json.loads(path.read_text())["results"]
    assert (kept["name"], kept["seconds"], kept["error"]) == ("gpu", None, failed["error"])


def test_every_run_is_written_when_it_is_done(monkeypatch, tmp_path):
    path, written = tmp_path / "out.json", []

    def train(given, case, kind, seed):
        written.append(len(json.loads(path.read_text())["results"]) if path.exists() else 0)
        return {"error": None, "history": [point(1.0, 0.3)], "workers": []}

    monkeypatch.setattr(heterogeneous, "train_ours", train)
    given = [SAMPLES, "--only", "a9a", "--gpu", "host", "--kinds", "cpu,gpu", "--seeds", "2"]
    assert main([*given, "--json", str(path)]) == 0
    assert written == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


class Peer:
    """In place of the process of PyTorch; keeps the settings that it is to train with."""

    settings: ClassVar = []

    def __init__(self, *given, **named):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def train(self, setting, seed, watch):
        self.settings.append(setting)
        return {"curve": [[0.0, 0.7], [1.0, 0.3]], "rows": 100}


@pytest.fixture
def peer(monkeypatch, tmp_path):
    """PyTorch without a GPU, and an empty file of tuned settings."""
    monkeypatch.setattr(Peer, "settings", [])
    monkeypatch.setattr(heterogeneous, "PeerProcess", Peer)
    monkeypatch.setattr(heterogeneous, "SETTINGS", TunedSettings(tmp_path / "tuned.json"))
    return Peer


def pytorch_run(which="a9a"):
    train = heterogeneous.pytorch(
        flags(data=Path(SAMPLES), tune=False, past_target=False, max_seconds=1.0), which
    )
    return train(0)


def test_without_a_search_pytorch_has_the_setting_of_the_case(peer):
    found = pytorch_run()
    assert (found["error"], found["setting_from"]) == (None, "default")
    assert peer.settings == [found["setting"]]
    assert found["setting"].items() >= CASES["a9a"].setting.items()
    assert found["setting"]["device"] == "cuda:0"


def test_a_setting_that_was_searched_for_comes_first(peer):
    tuned = {"optimizer": "sgd", "batch": 64, "lr": 0.5}
    heterogeneous.SETTINGS.keep("a9a", "pytorch-gpu", {"setting": tuned})
    found = pytorch_run()
    assert found["setting_from"] == "search" and found["setting"].items() >= tuned.items()


def test_without_any_setting_pytorch_does_not_train(peer, monkeypatch):
    monkeypatch.setitem(CASES, "a9a", replace(CASES["a9a"], setting=None))
    assert pytorch_run()["error"] == "no setting is known; search for one with --tune"
    assert peer.settings == []


def test_every_case_has_a_setting_for_pytorch():
    assert all(case.setting["batch"] in BATCHES for case in CASES.values())


def test_the_loss_of_a_metric_is_one_minus_the_metric():
    history = [point(1.0, 7.0) | {"test_values": {"P@1": 0.25}}, point(2.0, None)]
    history[1]["test_values"] = {}
    found = CASES["citeulike"].points(history)
    assert found == [point(1.0, 0.75), point(2.0, None)]
    assert CASES["w8a"].points(history)[0]["test_loss"] == 7.0
