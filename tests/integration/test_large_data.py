"""Runs whose rows are larger than --memory, so that they are on disk."""

import numpy as np
import pytest

from hogbatch.data import large as data_large
from hogbatch.events.event import CheckpointWritten, Started
from hogbatch.run import large, recipe

ROWS, WIDTH = 6000, 12
MEMORY = ("--memory", "241MB")  # of which a run of this size takes most
BATCH = ("--cpu-batch", "64:64")  # whose default size depends on measured speeds
COMMON = ("--hidden", "16", "--epochs", "10", "--seed", "1", *BATCH)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Rows sorted by their label, which two blocks next to each other share."""
    random = np.random.default_rng(4)
    cells = random.normal(size=(ROWS, WIDTH))
    labels = (cells[:, :3].sum(axis=1) + random.normal(size=ROWS) / 2 > 0).astype(int)
    table = np.column_stack([cells, labels])[np.argsort(labels, kind="stable")]
    made = tmp_path_factory.mktemp("large") / "rows.csv"
    header = ",".join([*(f"c{n}" for n in range(WIDTH)), "label"])
    np.savetxt(made, table, "%.5f," * WIDTH + "%d", header=header, comments="")
    return made


@pytest.fixture
def small_windows(monkeypatch):
    """Windows of some 500 rows, blocks of some 60, and a sample of some 1,200."""
    monkeypatch.setattr(large, "WINDOWS", 10_000)
    monkeypatch.setattr(data_large, "PIECE_FRACTION", 10_000)
    monkeypatch.setattr(data_large, "SAMPLE_FRACTION", 2_000)


def results(main, path, run_dir, *flags):
    done = main("train", path, *COMMON, "--workers", "cpu:2", "--run-dir", run_dir, *flags)
    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[-1]
    return done.stdout, float(line.split("test accuracy ")[1].split("loss ")[1].split(";")[0])


def test_rows_on_disk_give_the_same_loss(main, path, tmp_path, small_windows):
    """Found: rows that are not shuffled (they are sorted by label), lost, or read wrongly."""
    _, expected = results(main, path, tmp_path / "memory")
    said, loss = results(main, path, tmp_path / "disk", *MEMORY)
    assert "6,000 rows are larger than memory (--memory 241 MB): encoded like a sample of" in said
    assert loss == pytest.approx(expected, abs=0.05)


def test_columns_of_few_whole_numbers_are_read_from_disk(
    main, tmp_path, small_windows, monkeypatch
):
    """Found: short runs that compare features of the sample's values by the numbers of all rows."""
    monkeypatch.setattr(data_large, "SAMPLE_FRACTION", 800)
    random, path = np.random.default_rng(4), tmp_path / "hours.csv"
    hours, other = random.integers(0, 12, ROWS), random.normal(size=(ROWS, WIDTH))
    table = np.column_stack([hours, other, hours % 2])
    header = ",".join(["hour", *(f"c{n}" for n in range(WIDTH)), "label"])
    np.savetxt(path, table, "%d," + "%.5f," * WIDTH + "%d", header=header, comments="")
    said, _ = results(main, path, tmp_path / "run", *MEMORY)
    assert "6,000 rows are larger than memory" in said


def test_short_runs_find_the_epochs_of_rows_on_disk(
    main, path, tmp_path, small_windows, monkeypatch
):
    """Found: short runs that use the file of all rows in place of their own rows."""
    monkeypatch.setattr(recipe, "SMALL_ROWS", 1000)
    flags = ("--hidden", "16", "--workers", "cpu:1", "--run-dir", tmp_path / "run")
    done = main("train", path, *flags, *MEMORY)
    assert "6,000 rows are larger than memory" in done.stdout
    assert "epochs: " in done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("workers", ["cpu:1", "gpu:host"])
def test_workers_train_from_disk(main, path, tmp_path, small_windows, workers):
    flags = ("--cpu-teams", "1", "--workers", workers, "--memory", "280MB")
    _, loss = results(main, path, tmp_path / "run", *flags)
    assert loss < 0.5


def test_a_deterministic_run_from_disk_can_be_repeated(main, path, tmp_path, small_windows):
    flags = ("train", path, *COMMON, *MEMORY, "--deterministic")
    models = []
    for name in ("a", "b"):
        assert main(*flags, "--run-dir", tmp_path / name).returncode == 0
        models.append((tmp_path / name / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def test_a_killed_run_continues_with_the_same_rows(job, path):
    flags = ("--workers", "cpu:1", "--hidden", "256,256", "--lease-ms", 20)
    job.train(
        path,
        *flags,
        *MEMORY,
        "--epochs",
        1000,
        "--eval-seconds",
        1000,
        "--checkpoint-seconds",
        0.05,
    )
    job.wait_for_event(CheckpointWritten, 2)
    job.kill()
    resumed = job.train("--resume", "auto", *flags, "--epochs", 50)
    assert job.finish() == 0, job.said(resumed)
    (started, *_) = job.events(Started)
    assert job.summary()["rows"] == 50 * started.train_rows
    assert job.leftovers() == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--hidden", "4096,4096"), "--memory 241 MB: expected at least "),
        (("--memory", "5"), "--memory 5 B: expected more than the 120 MB of a process"),
        (("--group", "c1"), "--group needs all rows in memory, but those of "),
        (("--members", "3"), "--members needs all rows in memory, but those of "),
        (("--data-cache", "off"), "--data-cache off: the rows of "),
        (("--cluster", "local"), "--memory has no meaning with --cluster; remove it"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(main, path, tmp_path, flags, message):
    done = main("train", path, *MEMORY, *flags, "--run-dir", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.startswith(f"hogbatch: {message}") and done.stderr.count("\n") == 1
