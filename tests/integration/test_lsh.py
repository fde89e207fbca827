"""Runs with a hashed output layer: real processes on small synthetic data."""

import signal

import pytest

from hogbatch.data.synthetic import SyntheticSettings, generate, write_xmc
from hogbatch.model.file import load_model
from tests.support.fault_injection import Job, cli

ROWS, LABELS, EPOCHS = 4000, 1500, 6
TRAINING = ("--hidden", 64, "--loss", "softmax", "--optimizer", "adam", "--lr", 0.005)
BATCH = ("--cpu-batch", 32)
COMPILED_S = 540  # for a run that compiles kernels, on a loaded machine


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Flags that name the files."""
    folder = tmp_path_factory.mktemp("data")
    settings = SyntheticSettings(
        features=2000,
        labels=LABELS,
        rows=ROWS,
        test_rows=500,
        labels_per_row=2,
        features_per_row=30,
        topics=15,
        noise=0.2,
    )
    for name, examples in zip(("train.xmc", "test.xmc"), generate(settings), strict=True):
        write_xmc(examples, LABELS, folder / name)
    return folder / "train.xmc", "--test", folder / "test.xmc"


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Summaries of deterministic runs and the bytes of their models, by output layer and number.

    The first run with hashed outputs compiles its kernels, and the second loads them.
    """
    made = {}
    cache = str(tmp_path_factory.mktemp("cache"))

    def train(output, number=0):
        if (output, number) not in made:
            job = Job(tmp_path_factory.mktemp("job"))
            flags = (*TRAINING, *BATCH, "--epochs", EPOCHS, "--deterministic", "-q")
            own = {"HOGBATCH_CACHE": cache} if output == "lsh" else {}
            job.train(*data, *flags, "--output", output, **own)
            assert job.finish(within=COMPILED_S) == 0, job.said(job.coordinator)
            made[output, number] = job.summary(), (job.run_dir / "model.safetensors").read_bytes()
        return made[output, number]

    return train


def audit(job, epochs):
    """Every row of every epoch was acknowledged once, and no other epoch was begun."""
    leases = {}
    for event in job.events("lease"):
        leases.setdefault(event["epoch"], []).append(event["rows"])
    assert sorted(leases) == list(range(epochs))
    for ranges in leases.values():
        ranges.sort()
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == ROWS


def test_it_learns_about_as_much_as_a_dense_layer_from_the_same_rows(trained):
    (lsh, _), (dense, _) = trained("lsh"), trained("dense")
    assert lsh["rows"] == dense["rows"] == EPOCHS * ROWS
    losses = [entry["test_loss"] for entry in lsh["history"]]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.7 * losses[0]
    assert dense["test"]["value"] > 0.6
    assert lsh["test"]["value"] > dense["test"]["value"] - 0.08
    (worker,), (other,) = lsh["workers"], dense["workers"]
    assert 0 < worker["active"] < 0.1 * LABELS and other["active"] is None


def test_a_deterministic_run_that_compiles_and_one_that_does_not_are_equal_to_the_bit(trained):
    first, second = (trained("lsh", number) for number in range(2))
    assert first[1] == second[1]
    assert first[0]["test"] == second[0]["test"]


def test_a_cpu_and_a_gpu_worker_train_one_model(job, data):
    workers = ("--workers", "cpu:1,gpu:host", "--gpu-batch", "64:128", "--start-with", 2)
    workers += ("--policy", "paper-adaptive")  # which parks nobody
    job.train(*data, *TRAINING, *BATCH, *workers, "--output", "lsh", "--epochs", EPOCHS, "-q")
    assert job.finish(within=COMPILED_S) == 0, job.said(job.coordinator)
    audit(job, EPOCHS)
    summary = job.summary()
    cpu, gpu = sorted(summary["workers"], key=lambda worker: worker["device"])
    assert cpu["rows"] > 0 < gpu["rows"] and cpu["rows"] + gpu["rows"] == EPOCHS * ROWS
    assert cpu["active"] > 0 and gpu["active"] is None
    assert summary["test"]["value"] > 0.3  # usually 0.6
    assert job.leftovers() == []


VICTIM = """
import os, signal, sys
from pathlib import Path
from hogbatch.workers.cpu import CpuEngine
from hogbatch.workers.start import run

class Engine(CpuEngine):
    def _compute(self, work, *arguments):
        totals = super()._compute(work, *arguments)
        if work.lease:  # but not while it warms up
            os.kill(os.getpid(), signal.SIGKILL)
        return totals

run(Path(sys.argv[1]), Engine(1), None)
"""


def test_rows_of_a_killed_worker_are_done_by_others_once(job, data):
    """It has updated the model for all rows of its lease, but has not said so."""
    (job.folder / "victim.py").write_text(VICTIM)
    flags = ("--output", "lsh", "--lease-ms", 20, "--eval-seconds", 1000, "--epochs", EPOCHS)
    job.coordinate(*data, *TRAINING, *BATCH, *flags, "--start-with", 2)
    survivor, victim = job.attach("cpu", "--threads", 2), job._start("victim", job.run_dir)
    name = job.wait_for_event("worker_joined", pid=victim.pid)["worker"]
    assert job.finish(within=COMPILED_S) == 0
    assert (survivor.returncode, victim.returncode) == (0, -signal.SIGKILL)
    assert [event["worker"] for event in job.events("worker_lost")] == [name]
    (left,) = (event for event in job.events("worker_left") if event["worker"] == name)
    assert left["reissued"]
    assert name not in {event["worker"] for event in job.events("lease")}
    audit(job, EPOCHS)
    summary = job.summary()
    assert summary["status"] == "finished" and summary["rows"] == EPOCHS * ROWS
    assert summary["test"]["value"] > 0.3  # usually 0.6
    assert load_model(job.run_dir / "model.safetensors").network.outputs == LABELS
    assert job.leftovers() == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--output", "lsh", "--hidden", ""), "output lsh needs a hidden layer"),
        (("--lsh", "nonsense:K=1"), "expected auto or one of simhash, wta, dwta, minhash"),
        (("--lsh", "dwta:K=x"), "K must be a whole number"),
        (("--output", "sparse"), "sparse"),
    ],
    ids=lambda flags: " ".join(flags) if isinstance(flags, tuple) else "",
)
def test_what_cannot_be_hashed_is_refused_with_one_sentence(data, tmp_path, flags, said):
    check_refused(cli("train", *data, *flags, cwd=tmp_path), said)


def test_one_output_is_not_hashed(tmp_path):
    done = cli("train", "a9a", "--output", "lsh", cwd=tmp_path)
    check_refused(done, "output lsh needs several classes or labels; these data have one output")


def check_refused(done, said):
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert said in last and "Traceback" not in done.stderr
    assert last.startswith("hogbatch") and len(done.stderr.strip().splitlines()) == 1
