"""The exact training loss of `--evaluate train,test`, in real runs."""

import json
import signal
from pathlib import Path

import pytest

import hogbatch.data.samples
from tests.support.fault_injection import cli, wait_for

TRAIN = Path(hogbatch.data.samples.__file__).with_name("a9a.svm.gz")

EXACT = ("--evaluate", "train,test", "--eval-seconds", 1000)  # at the ends of epochs only


def evaluated(model, data):
    """What `hogbatch evaluate` finds, by name."""
    done = cli("evaluate", model, data)
    assert done.returncode == 0, done.stderr
    return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}


@pytest.mark.parametrize(
    "flags",
    [
        ("--workers", "cpu:2"),
        ("--workers", "gpu:host", "--gpu-batch", "64:512"),
        ("--workers", "cpu:1,gpu:host", "--gpu-batch", "64:512", "--average", "on"),
    ],
    ids=["cpu", "gpu", "mean"],
)
def test_the_exact_loss_is_that_of_hogbatch_evaluate(job, flags):
    usual = ("--hidden", 16, "--epochs", 2, "--keep", "last", *EXACT)
    job.train("a9a", *usual, *flags)
    assert job.finish() == 0, job.said(job.coordinator)
    history = job.summary()["history"]
    exact = [entry for entry in history if entry["exact_train_loss"] is not None]
    assert [entry["epochs"] for entry in exact] == [1.0, 2.0]
    found = evaluated(job.run_dir / "model.safetensors", TRAIN)
    assert exact[-1]["exact_train_loss"] == pytest.approx(found["loss"], abs=1e-4)
    assert exact[-1]["train_values"]["accuracy"] == pytest.approx(found["accuracy"], abs=1e-4)
    # Of the first epoch: in the second, both losses differ by little, in any direction.
    assert exact[0]["exact_train_loss"] < exact[0]["train_loss"] - 0.01


def test_the_exact_loss_is_in_the_progress_line(main, tmp_path):
    flags = ("--hidden", "", "--epochs", 1, "--workers", "cpu:1", "--run-dir", tmp_path / "run")
    done = main("train", "a9a", *flags, *EXACT)
    assert done.returncode == 0, done.stderr
    (evaluation,) = json.loads((tmp_path / "run" / "summary.json").read_text())["history"]
    assert f"(exact {evaluation['exact_train_loss']:.4f})  test " in done.stdout


def test_the_test_rows_alone_are_evaluated_by_default(finished_run):
    history = json.loads((finished_run / "summary.json").read_text())["history"]
    assert all(entry["exact_train_loss"] is None for entry in history)


def test_other_rows_are_refused(main):
    done = main("train", "a9a", "--evaluate", "all")
    assert done.returncode == 2 and "train,test" in done.stderr and "all" in done.stderr


def exact_epochs(job):
    """The epochs of the evaluations that have an exact loss."""
    evaluations = job.events("evaluation")
    return [each["epochs"] for each in evaluations if each["exact_train_loss"] is not None]


def test_a_resumed_run_has_exact_losses_of_both_parts(job):
    flags = ("--hidden", 512, "--workers", "cpu:1", "--evaluate", "train,test")
    job.train("a9a", *flags, "--epochs", 1000, "--checkpoint-seconds", 0.2)
    job.wait_for_event("checkpoint", 1)
    wait_for(lambda: exact_epochs(job)[1:2], "two epochs have an exact loss")
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    before = job.summary()
    done = cli("train", "--resume", job.run_dir, "--max-seconds", before["train_seconds"] + 1)
    assert done.returncode == 0, done.stderr
    history = job.summary()["history"]
    assert len(history) > len(before["history"])
    exact = [entry["epochs"] for entry in history if entry["exact_train_loss"] is not None]
    assert exact[:2] == [1.0, 2.0]
    assert exact[-1] == history[-1]["epochs"] > 2
