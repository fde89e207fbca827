"""`hogbatch rehearse` as a user calls it: real data and gradients, simulated times."""

import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from hogbatch.model.file import load_model
from tests.support.fault_injection import ROWS, WITHIN_S

SERVER = "h100-16cores"
NETWORK = ("--hidden", "32,16")
LAYERS = ("--layers", "conv:4x3x3,relu,pool:2,dense:8", "--augment", "flip")


@pytest.fixture
def rehearse(main, tmp_path):
    """Rehearse a run on a9a; return its run directory."""

    def run(name, *flags, server=SERVER):
        run_dir = tmp_path / name
        done = main("rehearse", "a9a", "--server", server, *NETWORK, *flags, "--run-dir", run_dir)
        assert done.returncode == 0, done.stderr
        return run_dir

    return run


def summary(run_dir):
    return json.loads((run_dir / "summary.json").read_text())


def files(run_dir):
    """The files whose contents must not depend on real time, without the name of the run."""
    names = ("events.jsonl", "summary.json", "model.safetensors")
    text = {name: (run_dir / name).read_bytes() for name in names}
    return {name: data.replace(str(run_dir).encode(), b"") for name, data in text.items()}


def test_two_rehearsals_with_one_seed_are_equal_to_the_bit(rehearse):
    flags = ("--workers", "cpu:2,gpu:0", "--optimizer", "adam")
    first, second = (rehearse(name, *flags, "--epochs", 1) for name in ("first", "second"))
    assert files(first) == files(second)


@pytest.mark.parametrize("given", [("a9a", *NETWORK), ("pictures.npz", *LAYERS)])
def test_one_thread_computes_what_a_real_one_computes(main, tmp_path, given):
    random, models = np.random.default_rng(0), []
    X, y = random.integers(0, 256, (300, 6, 6)).astype(np.uint8), random.integers(0, 3, 300)
    np.savez(tmp_path / "pictures.npz", X=X, y=y)
    flags = ("--workers", "cpu:1", "--policy", "fixed", "--cpu-batch", "16:16", "--epochs", 2)
    flags += ("--eval-seconds", "1e9", "--keep", "last")
    for command in (("train",), ("rehearse", "--server", SERVER)):
        run_dir = tmp_path / command[0]
        done = main(*command, *given, *flags, "--run-dir", run_dir, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        models.append(load_model(run_dir / "model.safetensors"))
    real, rehearsed = models
    for name, tensor in real.tensors.items():
        np.testing.assert_array_equal(rehearsed.tensors[name], tensor)


def test_a_rehearsal_has_the_results_of_a_run_and_is_marked(main, tmp_path):
    run_dir = tmp_path / "run"
    flags = ("--server", SERVER, *NETWORK, "--epochs", 3, "--policy", "paper-adaptive")
    done = main("rehearse", "a9a", *flags, "--run-dir", run_dir)
    assert all(line.startswith("rehearsed: ") for line in done.stdout.splitlines())
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    assert all(event["rehearsed"] == SERVER for event in events)
    assert {"lease", "evaluation", "epoch"} <= {event["event"] for event in events}
    assert load_model(run_dir / "model.safetensors").about["rehearsed"] == SERVER
    found = summary(run_dir)
    assert found["rehearsed"] == SERVER
    assert found["status"] == "finished" and found["rows"] == 3 * ROWS
    assert 0.84 < found["test"]["value"] < 0.87
    cpu, gpu = sorted(found["workers"], key=lambda worker: worker["device"])
    assert (cpu["device"], gpu["device"]) == ("cpu", "gpu")
    assert cpu["threads"] == 15  # one core is left for the GPU's worker
    assert cpu["rows"] + gpu["rows"] == found["rows"]
    assert 0 < gpu["merge_seconds"] < found["train_seconds"]
    assert all(0 < worker["busy"] <= 1 for worker in found["workers"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "the following arguments are required: --server"),
        (("--server", "mainframe"), "mainframe"),
        (("--server", SERVER, "--workers", "gpu:1"), "--workers gpu:1: h100-16cores has gpu:0"),
        (("--server", SERVER, "--resume", "auto"), "unknown argument '--resume'"),
        (("--server", SERVER, "--workers", "gpu:0,gpu:0"), "--workers gpu:0 is given twice"),
        (("--server", SERVER, "--config", "own.toml"), "does not support this setting"),
        (("--server", SERVER, "--servers", "2"), "unknown argument '--servers'"),
    ],
)
def test_wrong_input_is_one_sentence(main, tmp_path, flags, words):
    (tmp_path / "own.toml").write_text("deterministic = true\nepochs = 1\n")
    done = main("rehearse", "a9a", *flags, "--run-dir", "run", cwd=tmp_path)
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
    assert "stopped" in rest and summary(run_dir)["status"] == "stopped"
    assert load_model(run_dir / "model.safetensors").network.features == 123
