"""The exact training loss of `--evaluate train,test`, in real runs."""

from pathlib import Path

import pytest

import hogbatch.data.samples

TRAIN = Path(hogbatch.data.samples.__file__).with_name("a9a.svm.gz")


@pytest.mark.parametrize(
    "flags",
    [("--workers", "cpu:2"), ("--workers", "cpu:1,gpu:host", "--average", "on")],
    ids=["cpu", "mean"],
)
def test_the_exact_loss_is_that_of_hogbatch_evaluate(job, main, flags):
    """Also of an epoch before and of one after the run is resumed."""
    usual = ("--hidden", 16, "--keep", "last", "--gpu-batch", "64:512")
    exact = ("--evaluate", "train,test", "--eval-seconds", 1000)  # at the ends of epochs only
    for epochs in (1, 2):
        job.train("a9a", *usual, *exact, "--epochs", epochs, "--resume", "auto", *flags)
        assert job.finish() == 0, job.said(job.coordinator)
    history = job.summary()["history"]
    exact = [entry for entry in history if entry["exact_train_loss"] is not None]
    assert [entry["epochs"] for entry in exact] == [1.0, 2.0]
    done = main("evaluate", job.run_dir / "model.safetensors", TRAIN)
    found = dict(line.split() for line in done.stdout.splitlines())
    loss, accuracy = float(found["loss"]), float(found["accuracy"])
    assert exact[-1]["exact_train_loss"] == pytest.approx(loss, abs=1e-4)
    assert exact[-1]["train_values"]["accuracy"] == pytest.approx(accuracy, abs=1e-4)
    # Of the first epoch: in the second, both losses differ by little, in any direction.
    assert exact[0]["exact_train_loss"] < exact[0]["train_loss"] - 0.01
    said = job.printed(job.coordinator)
    assert f"(exact {exact[-1]['exact_train_loss']:.4f})  test " in said
