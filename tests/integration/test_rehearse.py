"""`hogbatch rehearse` as a user calls it: real data and gradients, simulated times."""

import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from hogbatch.model.file import load_model
from tests.support.fault_injection import WITHIN_S

ROWS = 32_561  # of a9a
SERVER = "h100-16cores"
NETWORK = ("--hidden", "32,16")


@pytest.fixture
def rehearse(main, tmp_path):
    """Rehearse a run on a9a; return its run directory."""

    def run(name, *flags, server=SERVER):
        run_dir = tmp_path / name
        done = main("rehearse", "a9a", "--server", server, *NETWORK, *flags, "--run-dir", run_dir)
        assert done.returncode == 0, done.stderr
        return run_dir

    return run


def files(run_dir):
    """The files whose contents must not depend on real time, without the name of the run."""
    names = ("events.jsonl", "summary.json", "model.safetensors")
    text = {name: (run_dir / name).read_bytes() for name in names}
    return {name: data.replace(str(run_dir).encode(), b"") for name, data in text.items()}


@pytest.mark.parametrize(
    "flags",
    [
        ("--workers", "cpu:4,gpu:0"),
        ("--workers", "cpu:3", "--policy", "fixed", "--optimizer", "adam", "--interleave", "batch"),
        ("--policy", "hogbatch", "--optimizer", "sgd", "--cpu-batch", "8:64"),
    ],
    ids=["adaptive", "layer by layer", "hogbatch"],
)
def test_two_rehearsals_with_one_seed_are_equal_to_the_bit(rehearse, flags):
    first, second = (rehearse(name, *flags, "--epochs", 1) for name in ("first", "second"))
    assert files(first) == files(second)


def test_another_seed_gives_another_run(rehearse):
    flags = ("--workers", "cpu:4", "--epochs", 1)
    first, second = (rehearse(str(seed), *flags, "--seed", seed) for seed in (0, 1))
    assert files(first)["model.safetensors"] != files(second)["model.safetensors"]


def test_one_thread_computes_what_a_real_one_computes(rehearse, main, tmp_path):
    flags = ("--workers", "cpu:1", "--policy", "fixed", "--cpu-batch", "16:16", "--epochs", 2)
    flags += ("--eval-seconds", "1e9", "--keep", "last")
    rehearsed = load_model(rehearse("rehearsed", *flags) / "model.safetensors")
    done = main("train", "a9a", *NETWORK, *flags, "--run-dir", tmp_path / "real")
    assert done.returncode == 0, done.stderr
    real = load_model(tmp_path / "real" / "model.safetensors")
    for name, tensor in real.tensors.items():
        np.testing.assert_array_equal(rehearsed.tensors[name], tensor)


def test_a_team_computes_what_one_thread_computes(rehearse):
    flags = ("--policy", "fixed", "--cpu-batch", "64:64", "--epochs", 1, "--keep", "last")
    flags += ("--eval-seconds", "1e9")
    one, team, two, apart = (
        load_model(rehearse(name, *flags, *own) / "model.safetensors").tensors
        for name, own in {
            "one": ("--workers", "cpu:1"),
            "team": ("--workers", "cpu:4"),
            "two": ("--workers", "cpu:4", "--cpu-teams", 2),
            "apart": ("--workers", "cpu:4", "--cpu-teams", 4),
        }.items()
    )
    for name, tensor in one.items():
        np.testing.assert_array_equal(team[name], tensor)
        assert (two[name] != tensor).any() and (two[name] != apart[name]).any()


def test_a_rehearsal_is_marked_wherever_its_figures_are(main, tmp_path):
    run_dir = tmp_path / "run"
    done = main("rehearse", "a9a", "--server", SERVER, "--epochs", 1, "--run-dir", run_dir)
    assert all(line.startswith("rehearsed: ") for line in done.stdout.splitlines())
    assert json.loads((run_dir / "summary.json").read_text())["rehearsed"] == SERVER
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    assert events and all(event["rehearsed"] == SERVER for event in events)
    assert load_model(run_dir / "model.safetensors").about["rehearsed"] == SERVER


def test_a_rehearsal_has_the_results_of_a_run(rehearse):
    run_dir = rehearse("run", "--epochs", 3, "--policy", "paper-adaptive")
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["rows"] == 3 * ROWS
    assert 0.84 < summary["test"]["value"] < 0.87
    assert {worker["device"] for worker in summary["workers"]} == {"cpu", "gpu"}
    cpu, gpu = sorted(summary["workers"], key=lambda worker: worker["device"])
    assert cpu["threads"] == 15  # one core is left for the GPU's worker
    assert cpu["rows"] + gpu["rows"] == summary["rows"]
    assert 0 < gpu["merge_seconds"] < summary["train_seconds"]
    assert all(0 < worker["busy"] <= 1 for worker in summary["workers"])


def test_json_has_the_summary_and_the_real_time(main, tmp_path):
    flags = ("--server", SERVER, "--workers", "gpu:0", "--epochs", 1, "--json")
    done = main("rehearse", "a9a", *flags, "--run-dir", tmp_path / "run")
    found = json.loads(done.stdout)
    assert found["rehearsed"] == SERVER and found["rows"] == ROWS
    assert found["rows_per_real_second"] == pytest.approx(ROWS / found["real_seconds"])


def test_more_threads_than_cores_share_them(rehearse):
    def seconds(threads):
        flags = ("--workers", f"cpu:{threads}", "--cpu-teams", threads, "--epochs", 1)
        flags += ("--policy", "fixed", "--cpu-batch", "32:32")
        run_dir = rehearse(f"cpu-{threads}", *flags, server="laptop-8cores")
        return json.loads((run_dir / "summary.json").read_text())["train_seconds"]

    assert seconds(32) == pytest.approx(seconds(8), rel=0.4)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "the following arguments are required: --server"),
        (("--server", "mainframe"), "mainframe"),
        (("--server", SERVER, "--workers", "gpu:1"), "--workers gpu:1: h100-16cores has gpu:0"),
        (("--server", SERVER, "--resume", "auto"), "unknown argument '--resume'"),
        (("--server", SERVER, "--workers", "gpu:0,gpu:0"), "--workers gpu:0 is given twice"),
        (("--server", SERVER, "--policy", "best"), "policy must be one of"),
    ],
)
def test_wrong_input_is_one_sentence(main, tmp_path, flags, words):
    done = main("rehearse", "a9a", *flags, "--run-dir", tmp_path / "run")
    assert done.returncode == 2
    assert words in done.stderr and re.fullmatch(r"hogbatch: .*\n", done.stderr)


def test_an_interrupt_ends_a_rehearsal_with_a_model(tmp_path):
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "hogbatch.cli.main", "rehearse", "a9a", "--server", SERVER]
    flags = [*NETWORK, "--max-seconds", "1e6", "--run-dir", str(run_dir)]
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True) as process:
        try:
            said = iter(process.stdout)
            assert any(" epoch " in line for line in said)  # it has trained
            process.send_signal(signal.SIGINT)
            rest = "".join(said)
            assert process.wait(WITHIN_S) == 130
        finally:
            process.kill()
    assert "stopped" in rest
    assert json.loads((run_dir / "summary.json").read_text())["status"] == "stopped"
    assert load_model(run_dir / "model.safetensors").network.features == 123


def test_workers_share_the_cores_of_the_server(rehearse):
    def seconds(workers):
        flags = ("--workers", workers, "--epochs", 1, "--policy", "fixed", "--cpu-batch", "32:32")
        run_dir = rehearse(workers.replace(":", "-"), *flags, server="epyc-2cores")
        return json.loads((run_dir / "summary.json").read_text())["train_seconds"]

    assert seconds("cpu:2,cpu:2") == pytest.approx(seconds("cpu:4"), rel=0.25)


@pytest.mark.parametrize("setting", ["deterministic = true", 'resume = "run"'])
def test_settings_that_a_rehearsal_cannot_follow_are_refused(main, tmp_path, setting):
    config = tmp_path / "config.toml"
    config.write_text(f"{setting}\nepochs = 1\n")
    flags = ("--server", SERVER, "--config", config, "--run-dir", tmp_path / "run")
    done = main("rehearse", "a9a", *flags)
    assert done.returncode == 2
    assert "a rehearsal does not support this setting" in done.stderr
